#include "client/rings.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "client/error.h"
#include "proto/shm/session.h"

namespace spccl::client {
namespace {

// Before it sleeps, a waiter gives its core to whoever can run, again and again for this long. A
// small operation is over by then, and neither side pays for a sleep and a wake-up: measured on two
// cores, 8 bytes, 2 ranks, 49 us without and 6 us with it (8 ranks: 56 and 24). Longer gains
// nothing, and on a crowded machine it costs.
constexpr int64_t kSpinNs = 20'000;

absl::Status CheckSegment(const shm::Segment& segment) {
  if (segment.magic == shm::kSegmentMagic && segment.version != shm::kShmVersion) {
    return absl::InternalError(absl::StrCat("the daemon's segment is of version ", segment.version,
                                            ", expected ", shm::kShmVersion,
                                            ": libspccl and spccld must be of the same release"));
  }
  if (segment.magic != shm::kSegmentMagic ||
      segment.submission_capacity != shm::kSubmissionCapacity ||
      segment.completion_capacity != shm::kCompletionCapacity) {
    return absl::InternalError(absl::StrCat(
        "the daemon's segment is of another kind: magic ", absl::Hex(segment.magic),
        ", capacities ", segment.submission_capacity, " and ", segment.completion_capacity));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rings>> Rings::Create(UniqueFd segment_fd, UniqueFd doorbell,
                                                     std::function<void(absl::Status)> on_broken) {
  if (const auto size = CheckSealedMemfd(segment_fd.get(), sizeof(shm::Segment)); !size.ok()) {
    return absl::InternalError(absl::StrCat("the daemon's segment: ", size.status().message()));
  }
  SPCCL_ASSIGN_OR_RETURN(SharedMapping mapping,
                         SharedMapping::Create(segment_fd.get(), sizeof(shm::Segment)));
  SPCCL_RETURN_IF_ERROR(CheckSegment(*reinterpret_cast<const shm::Segment*>(mapping.data())));
  return std::unique_ptr<Rings>(
      new Rings(std::move(mapping), std::move(doorbell), std::move(on_broken)));
}

Rings::Rings(SharedMapping mapping, UniqueFd doorbell, std::function<void(absl::Status)> on_broken)
    : mapping_(std::move(mapping)),
      doorbell_(std::move(doorbell)),
      on_broken_(std::move(on_broken)),
      producer_(&segment()->submission_control, segment()->submissions, shm::kSubmissionCapacity),
      consumer_(&segment()->completion_control, segment()->completions, shm::kCompletionCapacity),
      free_count_(shm::kCompletionCapacity) {
  for (uint32_t i = 0; i < shm::kCompletionCapacity; ++i) free_[i] = static_cast<uint16_t>(i);
}

absl::StatusOr<Rings::Push> Rings::Submit(const std::shared_ptr<Ticket>& ticket,
                                          shm::Submission submission, uint32_t* seen) {
  absl::Status broken;
  bool daemon_sleeps = false;
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.ok()) return dead_;
    if (free_count_ == 0) broken = DrainLocked();
    *seen = consumer_.popped();
    if (broken.ok() && free_count_ == 0) return Push::kNoRoom;
    if (broken.ok()) {
      const uint16_t index = free_[free_count_ - 1];
      submission.ticket = ++rounds_ * shm::kCompletionCapacity + index;
      const shm::RingState state = producer_.TryPush(submission);
      // The ring holds as many as may be outstanding, so it is full only while the daemon has not
      // yet taken what it has already completed: it soon will.
      if (state == shm::RingState::kNotReady) return Push::kNoRoom;
      if (state == shm::RingState::kReady) {
        --free_count_;
        outstanding_[index] = {submission.ticket, ticket};
        // If it does not, it looks once more before it does: see RingControl.
        daemon_sleeps = producer_.NeedsWake();
      } else {
        broken = absl::InternalError("the daemon corrupted the submission ring's head");
        FailLocked(broken);
      }
    }
  }
  if (!broken.ok()) {
    on_broken_(broken);
    return broken;
  }
  if (daemon_sleeps) RingDoorbell();
  return Push::kPushed;
}

void Rings::RingDoorbell() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the daemon is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void Rings::Drain() {
  absl::Status broken;
  {
    const std::lock_guard lock(mutex_);
    broken = DrainLocked();
  }
  if (!broken.ok()) on_broken_(broken);
}

bool Rings::Wait(const Ticket& ticket, int64_t deadline_ns) {
  for (;;) {
    // Acquire: what OnDone wrote is visible.
    if (ticket.done_.load(std::memory_order_acquire)) return true;
    uint32_t seen;
    absl::Status broken;
    {
      const std::lock_guard lock(mutex_);
      broken = DrainLocked();
      seen = consumer_.popped();
    }
    if (!broken.ok()) on_broken_(broken);
    if (ticket.done_.load(std::memory_order_acquire)) return true;
    int64_t timeout_ns = kLongestSleepNs;
    if (deadline_ns >= 0) timeout_ns = std::min(timeout_ns, deadline_ns - MonotonicNanos());
    if (timeout_ns <= 0) return false;
    Sleep(seen, timeout_ns);
  }
}

void Rings::WaitForProgress(uint32_t seen) {
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.ok()) return;
  }
  Sleep(seen, kLongestSleepNs);
  Drain();
}

uint32_t Rings::Seen() {
  const std::lock_guard lock(mutex_);
  return consumer_.popped();
}

bool Rings::Spin(uint32_t seen) {
  // Acquire, as the consumer's own look at the tail.
  const std::atomic<uint32_t>* tail = consumer_.futex();
  return spin_.Until([&] { return tail->load(std::memory_order_acquire) != seen; }, kSpinNs);
}

void Rings::Sleep(uint32_t seen, int64_t timeout_ns) {
  if (Spin(seen)) return;
  // Sequentially consistent: the store to `sleepers` comes before the look at `tail` (here and
  // again in the kernel), as the daemon's store to `tail` comes before its look at `sleepers`; so
  // one of the two sees the other's.
  std::atomic<uint32_t>* tail = consumer_.futex();
  consumer_.sleepers()->fetch_add(1, std::memory_order_seq_cst);
  if (tail->load(std::memory_order_seq_cst) == seen) FutexWait(tail, seen, timeout_ns);
  consumer_.sleepers()->fetch_sub(1, std::memory_order_seq_cst);
}

absl::Status Rings::DrainLocked() {
  if (!dead_.ok()) return absl::OkStatus();
  shm::Completion completion;
  // At most a ringful at a time, so that no daemon can keep us here.
  for (uint32_t taken = 0; taken < shm::kCompletionCapacity; ++taken) {
    const shm::RingState state = consumer_.TryPop(&completion);
    if (state == shm::RingState::kNotReady) break;
    absl::Status status =
        state == shm::RingState::kReady
            ? TakeLocked(completion)
            : absl::InternalError("the daemon corrupted the completion ring's tail");
    if (!status.ok()) {
      FailLocked(status);
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Rings::TakeLocked(const shm::Completion& completion) {
  Outstanding& slot = outstanding_[completion.ticket % shm::kCompletionCapacity];
  if (slot.ticket == nullptr || slot.id != completion.ticket) {
    return absl::InternalError(absl::StrCat("the daemon completed ticket ", completion.ticket,
                                            ", which is not outstanding"));
  }
  FinishLocked(&slot, StatusOfWire(completion.result, shm::TextOf(completion.message)),
               /*by_daemon=*/true);
  return absl::OkStatus();
}

void Rings::FinishLocked(Outstanding* slot, absl::Status result, bool by_daemon) {
  const std::shared_ptr<Ticket> ticket = std::move(slot->ticket);
  slot->ticket = nullptr;
  free_[free_count_++] = static_cast<uint16_t>(slot - outstanding_.data());
  ticket->OnDone(std::move(result), by_daemon);
  // Release: whoever sees it done sees what OnDone wrote.
  ticket->done_.store(true, std::memory_order_release);
}

void Rings::FailLocked(const absl::Status& reason) {
  if (!dead_.ok()) return;
  dead_ = reason;
  for (Outstanding& slot : outstanding_) {
    if (slot.ticket != nullptr) FinishLocked(&slot, reason, /*by_daemon=*/false);
  }
}

void Rings::Fail(const absl::Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    // What was completed before the end is complete; a corrupt ring changes nothing any more.
    (void)DrainLocked();
    FailLocked(reason);
  }
  FutexWakeAll(consumer_.futex());
}

}  // namespace spccl::client
