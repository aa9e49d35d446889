#include "client/stream_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::client {

namespace {

// Keeps it mapped until the process ends: 160 KiB a session.
SharedMapping* KeepForGood(SharedMapping mapping) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::unique_ptr<SharedMapping>>;
  const std::lock_guard lock(*mutex);
  return kept->emplace_back(std::make_unique<SharedMapping>(std::move(mapping))).get();
}

}  // namespace

absl::Status CheckTakesGpuMemory(const Session& session) {
  if (session.minor() >= 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the daemon (spccld) is older than this library and takes no GPU memory: update it");
}

StreamOrder::StreamOrder(const cuda::Driver& driver, SharedMapping* mapping, uint64_t pointer)
    : driver_(driver), mapping_(mapping), pointer_(pointer) {
  // What ends operations must not want for memory.
  passing_.reserve(shm::kOrderSlots);
  failed_captured_.reserve(shm::kOrderSlots);
  // From the back, so that the first is taken first.
  for (uint32_t slot = shm::kEagerSlots; slot-- > 0;) free_.push_back(slot);
  for (uint32_t slot = shm::kOrderSlots; slot-- > shm::kEagerSlots;) free_captured_.push_back(slot);
}

absl::StatusOr<std::shared_ptr<StreamOrder>> StreamOrder::Open(Session& session,
                                                               const cuda::Driver& driver,
                                                               cuda::Context context) {
  SPCCL_RETURN_IF_ERROR(CheckTakesGpuMemory(session));
  shm::Request request{};
  request.type = shm::RequestType::kOrderMemory;
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd memfd,
                         session.AskForDescriptor(request, "asking for the order memory"));
  constexpr size_t kBytes = sizeof(shm::OrderMemory);
  if (const auto size = CheckSealedMemfd(memfd.get(), kBytes); !size.ok()) {
    return absl::InternalError(
        absl::StrCat("the daemon's order memory: ", size.status().message()));
  }
  SPCCL_ASSIGN_OR_RETURN(SharedMapping mapping, SharedMapping::Create(memfd.get(), kBytes));
  const cuda::ScopedContext current(driver, context);
  SPCCL_RETURN_IF_ERROR(current.status());
  // The words must be reached by the streams of all of the program's GPUs.
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.MemHostRegister(mapping.data(), kBytes,
                             cuda::kMemHostRegisterPortable | cuda::kMemHostRegisterDeviceMap),
      "registering the order memory"));
  cuda::DevicePtr pointer = 0;
  absl::Status status = driver.ToStatus(driver.MemHostGetDevicePointer(&pointer, mapping.data(), 0),
                                        "asking for the order memory's device pointer");
  if (!status.ok()) {
    (void)driver.MemHostUnregister(mapping.data());
    return status;
  }
  std::shared_ptr<StreamOrder> order(
      new StreamOrder(driver, KeepForGood(std::move(mapping)), pointer));
  session.WhenDead([order] { order->OnSessionDead(); });
  return order;
}

std::optional<StreamOrder::Use> StreamOrder::Take(uint32_t comm_id, uint32_t share, Room room) {
  const std::lock_guard lock(mutex_);
  const auto has_room = [&] {
    const auto held = held_.find(comm_id);
    if (free_.empty() || held == held_.end()) return !free_.empty();
    const size_t comms = shm::kEagerSlots / share;  // as many as there are, or more
    if (held_.size() < comms && free_.size() <= comms - held_.size()) return false;
    if (room == Room::kOneMore) {
      return held->second < share || free_.size() > comms;
    }
    return held->second + 1 < share && held->second < free_.size();
  };
  if (!has_room()) TakeBackPassedLocked();
  if (!has_room()) return std::nullopt;
  ++held_[comm_id];
  const uint32_t slot = free_.back();
  free_.pop_back();
  return Use{.slot = slot, .value = ++values_[slot], .comm_id = comm_id};
}

void StreamOrder::TakeBackPassedLocked() {
  std::erase_if(passing_, [this](const Use& use) {
    const shm::OrderSlot& words = memory()->slots[use.slot];
    if (words.ready.load(std::memory_order_acquire) != use.value) return false;
    if (words.done.load(std::memory_order_acquire) != use.value) return false;
    FreeLocked(use);
    return true;
  });
}

void StreamOrder::FreeLocked(const Use& use) {
  if (use.is_captured()) return free_captured_.push_back(use.slot);
  free_.push_back(use.slot);
  const auto held = held_.find(use.comm_id);
  if (--held->second == 0) held_.erase(held);
}

std::optional<StreamOrder::Use> StreamOrder::TakeForCapture() {
  const std::lock_guard lock(mutex_);
  if (free_captured_.empty()) return std::nullopt;
  const uint32_t slot = free_captured_.back();
  free_captured_.pop_back();
  return Use{.slot = slot, .value = 1};
}

void StreamOrder::GiveBack(const Use& use, bool was_passed) {
  const std::lock_guard lock(mutex_);
  if (was_passed) return FreeLocked(use);
  if (session_is_dead_) StoreDone(use);
  passing_.push_back(use);
}

void StreamOrder::NoteError(const Use& captured) {
  const std::lock_guard lock(mutex_);
  if (session_is_dead_) StoreDone(captured);
  const bool is_known = std::any_of(failed_captured_.begin(), failed_captured_.end(),
                                    [&](const Use& other) { return other.slot == captured.slot; });
  if (!is_known) failed_captured_.push_back(captured);
}

void StreamOrder::OnSessionDead() {
  const std::lock_guard lock(mutex_);
  session_is_dead_ = true;
  for (const Use& use : passing_) StoreDone(use);
  for (const Use& use : failed_captured_) StoreDone(use);
}

uint64_t StreamOrder::PointerTo(const std::atomic<uint32_t>& word) const {
  return pointer_ +
         static_cast<uint64_t>(reinterpret_cast<const std::byte*>(&word) - mapping_->data());
}

absl::Status StreamOrder::EnqueueReady(const Use& use, cuda::Stream stream) const {
  const uint64_t ready = PointerTo(memory()->slots[use.slot].ready);
  return driver_.ToStatus(
      driver_.StreamWriteValue32(stream, ready, use.value, cuda::kStreamWriteValueDefault),
      "writing an order word on the stream");
}

absl::Status StreamOrder::EnqueueWait(const Use& use, cuda::Stream stream) const {
  const uint64_t done = PointerTo(memory()->slots[use.slot].done);
  SPCCL_RETURN_IF_ERROR(driver_.ToStatus(
      driver_.StreamWaitValue32(stream, done, use.value, cuda::kStreamWaitValueGeq),
      "waiting for an order word on the stream"));
  if (!use.is_captured()) return absl::OkStatus();
  // So that the next replay finds the slot as this one did.
  return driver_.ToStatus(
      driver_.StreamWriteValue32(stream, done, 0, cuda::kStreamWriteValueDefault),
      "resetting an order word on the stream");
}

// Release: what was done to the memory before is seen by whoever sees the word.
void StreamOrder::StoreReady(const Use& use) {
  memory()->slots[use.slot].ready.store(use.value, std::memory_order_release);
}

void StreamOrder::StoreDone(const Use& use) {
  memory()->slots[use.slot].done.store(use.value, std::memory_order_release);
}

}  // namespace spccl::client
