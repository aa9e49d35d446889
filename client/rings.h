// The client's side of a session's two rings: operations out, completions in.
//
// Any thread that waits takes completions off the ring, for whomever they are; threads with nothing
// to take sleep on the ring's tail. Nothing here blocks except Wait and WaitForProgress, and both
// end when the session dies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/memory.h"
#include "base/unique_fd.h"
#include "base/yield_spin.h"
#include "proto/shm/slot.h"

namespace spccl::client {

// Nobody sleeps longer than this without looking again: the daemon or another rank may die between
// a waiter's last look and its sleep, and what it sleeps on is not ours to write.
constexpr int64_t kLongestSleepNs = 100'000'000;

// Something that was submitted and is to be completed.
class Ticket {
 public:
  virtual ~Ticket() = default;

 private:
  friend class Rings;
  // Called exactly once, with the rings locked: must not block and not call the rings.
  // `by_daemon`: it says so; else the session is dead.
  virtual void OnDone(absl::Status result, bool by_daemon) = 0;
  std::atomic<bool> done_{false};
};

class Rings {
 public:
  enum class Push { kPushed, kNoRoom };

  // `segment_fd` and `doorbell` came with the daemon's reply to kHello; both are checked.
  // `on_broken` is called once, unlocked, if the daemon writes what cannot be.
  static absl::StatusOr<std::unique_ptr<Rings>> Create(UniqueFd segment_fd, UniqueFd doorbell,
                                                       std::function<void(absl::Status)> on_broken);

  // Submits one operation: fills in submission.ticket, pushes it and wakes the daemon if it sleeps.
  // kNoRoom: as many operations are outstanding as the session allows; `*seen` is then to be given
  // to WaitForProgress. An error means that the session is dead, and that nothing was submitted.
  absl::StatusOr<Push> Submit(const std::shared_ptr<Ticket>& ticket, shm::Submission submission,
                              uint32_t* seen);

  // Has the daemon look after this session's operations, also those that it has already.
  void RingDoorbell();

  // Takes all completions that are there. Does not block.
  void Drain();

  // Waits until the ticket is done, or until the deadline (MonotonicNanos; negative: none). False
  // only if the time ran out.
  bool Wait(const Ticket& ticket, int64_t deadline_ns = -1);

  // Waits until more completions were taken than `seen`, a short time has passed, or the session
  // has died. May return early.
  void WaitForProgress(uint32_t seen);
  // The completions taken so far, for WaitForProgress.
  uint32_t Seen();

  // The session is dead: every outstanding ticket is done with `reason`, now and from now on.
  // Completions that the daemon still wrote count.
  void Fail(const absl::Status& reason);

 private:
  struct Outstanding {
    uint64_t id = 0;
    std::shared_ptr<Ticket> ticket;
  };

  Rings(SharedMapping mapping, UniqueFd doorbell, std::function<void(absl::Status)> on_broken);
  shm::Segment* segment() const { return reinterpret_cast<shm::Segment*>(mapping_.data()); }
  absl::Status DrainLocked();
  absl::Status TakeLocked(const shm::Completion& completion);
  void FailLocked(const absl::Status& reason);
  void FinishLocked(Outstanding* slot, absl::Status result, bool by_daemon);
  // Looks for a short time whether more completions than `seen` come; true if so.
  bool Spin(uint32_t seen);
  void Sleep(uint32_t seen, int64_t timeout_ns);

  const SharedMapping mapping_;
  const UniqueFd doorbell_;
  const std::function<void(absl::Status)> on_broken_;

  YieldSpin spin_;
  std::mutex mutex_;
  shm::Producer<shm::Submission> producer_;
  shm::Consumer<shm::Completion> consumer_;
  // A ticket's id is its index here plus a multiple of the capacity that no other ticket had.
  std::array<Outstanding, shm::kCompletionCapacity> outstanding_;
  std::array<uint16_t, shm::kCompletionCapacity> free_;
  uint32_t free_count_;
  uint64_t rounds_ = 0;
  absl::Status dead_;
};

}  // namespace spccl::client
