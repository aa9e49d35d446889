// An in-order queue of operations.
//
// What can be submitted at once is submitted by the caller's thread. What must wait (for room, for
// an earlier operation on another communicator, or because data must be copied) is run by a worker
// thread, and by another what a host function of a CUDA stream found no room for; each is started
// when first needed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/operation.h"

namespace spccl::client {

// Thread-safe.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream() = default;
  ~Stream() { Shutdown(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Issues the operation to its communicator and puts it at the stream's end: both orders are those
  // of the calls. With `may_block` a staged operation runs on this thread if nothing is before it.
  absl::Status Enqueue(const std::shared_ptr<Operation>& op, bool may_block);

  // For operations that something else submits when their time has come: the first gives it its
  // place, the second submits it, unless it has been cancelled since, and waits for no room. May be
  // called where the driver must not be (a host function of a CUDA stream).
  absl::Status Reserve(const std::shared_ptr<Operation>& op);
  void SubmitReserved(const std::shared_ptr<Operation>& op);
  // It will not be submitted: as Operation::Fail.
  void FailReserved(const std::shared_ptr<Operation>& op, const absl::Status& status);

  // Waits for the end of an operation of this stream. deadline_ns: MonotonicNanos, negative: none.
  // False if time ran out.
  bool Wait(Operation& op, int64_t deadline_ns = -1);

  // Fails those of the communicator's operations that have not begun.
  void Cancel(const Comm& comm, const absl::Status& reason);

  // Whether operations are unfinished.
  bool Busy();
  // The first error of finished operations since TakeError.
  absl::Status Error();
  absl::Status TakeError();
  // Waits for all operations that were put here so far.
  void WaitAll();

  // Accepts no more; runs what is queued or due, and ends the threads.
  void Shutdown();

 private:
  struct Queued {
    std::shared_ptr<Operation> op;
    std::shared_ptr<Operation> previous;  // the last unfinished one before it, or null
  };

  absl::Status IssueLocked(const std::shared_ptr<Operation>& op);
  void PruneLocked();
  std::shared_ptr<Operation> LastUnfinishedLocked() const;
  absl::Status StartLocked(std::thread* thread, const char* name, void (Stream::*body)());
  void Work();
  void Run(const Queued& queued);
  void SubmitDue();
  bool SubmitDueLocked();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> ops_;  // unfinished, in order; finished ones in between
  std::deque<Queued> queue_;                    // those of ops_ that the worker will run
  std::vector<std::shared_ptr<Operation>> reserved_;
  std::vector<std::shared_ptr<Operation>> due_;  // of them: their time came, there was no room
  bool running_ = false;                         // a thread runs an operation outside the lock
  bool shut_ = false;
  absl::Status first_error_;
  std::thread worker_;
  std::thread submitter_;  // of those that are due; runs nothing else, for which they might wait
};

}  // namespace spccl::client
