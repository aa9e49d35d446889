#include "daemon/gpu_offer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace spccl::daemon {
namespace {

// Of splitmix64 (Steele et al., 2014).
uint64_t Mix(uint64_t digest, uint64_t value) {
  uint64_t z = digest + 0x9E3779B97F4A7C15U + value;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
  z = (z ^ z >> 27) * 0x94D049BB133111EBU;
  return z ^ z >> 31;
}

// More than a daemon remembers.
constexpr int kMostWorlds = 1024;
constexpr size_t kLongestText = 256;

// "NCCL 2.28.9"
std::string LibraryOf(const GpuOffer& offer) {
  const int version = offer.library_version;
  return absl::StrCat(offer.is_ncclx ? "NCCLX " : "NCCL ", version / 10000, ".",
                      version / 100 % 100, ".", version % 100);
}

}  // namespace

v1::GpuOffer ToMessage(const GpuOffer& offer) {
  v1::GpuOffer message;
  message.set_gpus(offer.gpus);
  message.set_library_version(static_cast<uint32_t>(offer.library_version));
  message.set_is_ncclx(offer.is_ncclx);
  message.set_why_none(offer.why_none);
  for (const auto& [set, generation] : offer.generations) {
    v1::GpuWorld& world = *message.add_worlds();
    world.set_set(set);
    world.set_generation(generation);
  }
  return message;
}

absl::StatusOr<GpuOffer> FromMessage(const v1::GpuOffer& message) {
  GpuOffer offer;
  if (message.gpus() > kMostGpusOfNode) {
    return absl::InvalidArgumentError(
        absl::StrCat("a node with ", message.gpus(), " GPUs; ", kMostGpusOfNode, " are the most"));
  }
  if (message.worlds_size() > kMostWorlds) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a node in ", message.worlds_size(), " worlds of GPUs; ", kMostWorlds, " are the most"));
  }
  offer.gpus = message.gpus();
  offer.library_version = static_cast<int>(message.library_version());
  offer.is_ncclx = message.is_ncclx();
  offer.why_none = message.why_none().substr(0, kLongestText);
  for (const v1::GpuWorld& world : message.worlds()) {
    if (world.generation() > kLastGeneration) {
      return absl::InvalidArgumentError(
          absl::StrCat("a world of GPUs of generation ", world.generation()));
    }
    offer.generations[world.set()] = world.generation();
  }
  return offer;
}

uint64_t SetOf(std::vector<GpuSeat> seats) {
  std::sort(seats.begin(), seats.end(),
            [](const GpuSeat& a, const GpuSeat& b) { return a.boot_id < b.boot_id; });
  uint64_t digest = Mix(0, seats.size());
  for (const GpuSeat& seat : seats) digest = Mix(Mix(digest, seat.boot_id), seat.gpus);
  return digest;
}

absl::StatusOr<uint64_t> AgreeOnWorld(const std::vector<GpuOffering>& nodes) {
  std::vector<GpuSeat> seats;
  for (const GpuOffering& node : nodes) {
    if (node.offer.gpus == 0) {
      const std::string& why = node.offer.why_none;
      return absl::FailedPreconditionError(
          absl::StrCat("on ", node.name, ": ", why.empty() ? "spccld offers no GPU" : why));
    }
    if (LibraryOf(node.offer) != LibraryOf(nodes[0].offer)) {
      return absl::FailedPreconditionError(absl::StrCat(LibraryOf(nodes[0].offer), " on ",
                                                        nodes[0].name, ", ", LibraryOf(node.offer),
                                                        " on ", node.name));
    }
    seats.push_back({.boot_id = node.boot_id, .gpus = node.offer.gpus});
  }
  const uint64_t set = SetOf(std::move(seats));
  uint64_t generation = 1;
  for (const GpuOffering& node : nodes) {
    const auto known = node.offer.generations.find(set);
    if (known != node.offer.generations.end()) generation = std::max(generation, known->second);
  }
  return generation;
}

}  // namespace spccl::daemon
