#include "daemon/gpu_offer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mix.h"
#include "base/status.h"
#include "collective/transport/nccl/library.h"

namespace spccl::daemon {
namespace {

// More than a daemon remembers.
constexpr int kMostTold = 1024;
constexpr size_t kLongestText = 256;

std::string LibraryOf(const GpuOffer& offer) {
  return transport::nccl::Library::NameOf(offer.library_version, offer.is_ncclx);
}

}  // namespace

absl::Status CheckGeneration(uint64_t generation) {
  if (generation <= kLastGeneration) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a world of GPUs of generation ", generation, "; ",
                                                 kLastGeneration, " would be the last"));
}

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
  if (message.worlds_size() > kMostTold) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a node in ", message.worlds_size(), " worlds of GPUs; ", kMostTold, " are the most"));
  }
  offer.gpus = message.gpus();
  offer.library_version = static_cast<int>(message.library_version());
  offer.is_ncclx = message.is_ncclx();
  offer.why_none = message.why_none().substr(0, kLongestText);
  for (const v1::GpuWorld& world : message.worlds()) {
    SPCCL_RETURN_IF_ERROR(CheckGeneration(world.generation()));
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
