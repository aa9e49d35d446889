#include "client/stream.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "client/comm.h"
#include "client/error.h"
#include "client/session.h"
#include "client/threads.h"

namespace spccl::client {
namespace {

// How soon an operation that waits for another one's end sees that its own communicator has failed.
constexpr int64_t kHealthCheckNs = 100'000'000;

}  // namespace

absl::Status Stream::Enqueue(const std::shared_ptr<Operation>& op, bool may_block) {
  std::unique_lock lock(mutex_);
  if (shut_) return absl::FailedPreconditionError("the stream, or the communicator, was destroyed");
  PruneLocked();
  std::shared_ptr<Operation> previous = LastUnfinishedLocked();
  SPCCL_RETURN_IF_ERROR(IssueLocked(op));
  if (queue_.empty() && !running_) {
    // The daemon runs the operations of one communicator in their order, so they need not wait
    // here.
    const bool may_follow = previous == nullptr || &previous->comm() == &op->comm();
    if (may_follow && !op->is_staged() && op->SubmitIfRoom()) return absl::OkStatus();
    if (previous == nullptr && op->is_staged() && may_block) {
      running_ = true;
      lock.unlock();
      op->RunStaged();
      lock.lock();
      running_ = false;
      changed_.notify_all();
      return absl::OkStatus();
    }
  }
  const absl::Status queued = CatchAll([&]() -> absl::Status {
    SPCCL_RETURN_IF_ERROR(StartLocked(&worker_, "spccl-stream", &Stream::Work));
    queue_.push_back({op, std::move(previous)});
    return absl::OkStatus();
  });
  if (!queued.ok()) op->Fail(queued);
  changed_.notify_all();
  return absl::OkStatus();
}

// From then on it has its place in the communicator's order, which nothing may take from it: what
// can fail comes before.
absl::Status Stream::IssueLocked(const std::shared_ptr<Operation>& op) {
  ops_.push_back(op);
  const absl::Status issued = CatchAll([&] { return op->comm().Issue(op, weak_from_this()); });
  if (!issued.ok()) ops_.pop_back();
  return issued;
}

absl::Status Stream::Reserve(const std::shared_ptr<Operation>& op) {
  const std::lock_guard lock(mutex_);
  if (shut_) return absl::FailedPreconditionError("the stream, or the communicator, was destroyed");
  PruneLocked();
  reserved_.push_back(op);
  const absl::Status issued = CatchAll([&] { return IssueLocked(op); });
  if (!issued.ok()) reserved_.pop_back();
  return issued;
}

// Does not wait for room: a driver may have one thread for all streams' host functions, and those
// that come next be the ones that have it.
void Stream::SubmitReserved(const std::shared_ptr<Operation>& op) {
  const std::lock_guard lock(mutex_);
  if (!op->is_finished() && !op->SubmitIfRoom()) {
    const absl::Status due = CatchAll([&]() -> absl::Status {
      SPCCL_RETURN_IF_ERROR(StartLocked(&submitter_, "spccl-submit", &Stream::SubmitDue));
      due_.push_back(op);
      return absl::OkStatus();
    });
    if (due.ok()) {
      changed_.notify_all();
      return;
    }
    op->Fail(due);
  }
  std::erase(reserved_, op);
  changed_.notify_all();
}

void Stream::SubmitDue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return shut_ || !due_.empty(); });
    if (due_.empty()) return;
    const std::shared_ptr<Session> session = due_.front()->comm().session();
    const uint32_t seen = session->rings().Seen();
    if (SubmitDueLocked()) continue;
    lock.unlock();
    session->rings().WaitForProgress(seen);
    lock.lock();
  }
}

// All that there is room for, in whatever order they came. False: none.
bool Stream::SubmitDueLocked() {
  return std::erase_if(due_, [this](const std::shared_ptr<Operation>& op) {
           if (!op->is_finished() && !op->SubmitIfRoom()) return false;
           std::erase(reserved_, op);
           changed_.notify_all();
           return true;
         }) > 0;
}

void Stream::FailReserved(const std::shared_ptr<Operation>& op, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  // Its time may have come already.
  if (!op->is_finished() && !op->is_submitted()) op->Fail(status);
  std::erase(reserved_, op);
  std::erase(due_, op);
  changed_.notify_all();
}

bool Stream::Wait(Operation& op, int64_t deadline_ns) {
  {
    std::unique_lock lock(mutex_);
    const auto is_out = [&] { return op.is_finished() || (op.is_submitted() && !op.is_staged()); };
    if (deadline_ns < 0) {
      changed_.wait(lock, is_out);
    } else if (!changed_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - MonotonicNanos()),
                                  is_out)) {
      return false;
    }
  }
  return op.is_finished() || op.WaitSubmitted(deadline_ns);
}

void Stream::PruneLocked() {
  while (!ops_.empty() && ops_.front()->Poll()) {
    const absl::Status result = ops_.front()->result();
    if (first_error_.ok()) first_error_ = result;
    // The communicator may learn by itself only later that it has failed.
    if (!result.ok()) ops_.front()->comm().SetLastError(result.message());
    ops_.pop_front();
  }
}

std::shared_ptr<Operation> Stream::LastUnfinishedLocked() const {
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    if (!(*op)->is_finished()) return *op;
  }
  return nullptr;
}

void Stream::Cancel(const Comm& comm, const absl::Status& reason) {
  const std::lock_guard lock(mutex_);
  // They stay in the queue, so that those behind them still wait for those before them.
  for (const Queued& queued : queue_) {
    if (&queued.op->comm() == &comm && !queued.op->is_finished()) queued.op->Fail(reason);
  }
  const auto is_its = [&](const std::shared_ptr<Operation>& op) { return &op->comm() == &comm; };
  for (const auto& op : reserved_) {
    if (is_its(op) && !op->is_finished()) op->Fail(reason);
  }
  std::erase_if(reserved_, is_its);
  std::erase_if(due_, is_its);
  changed_.notify_all();
}

bool Stream::Busy() {
  const std::lock_guard lock(mutex_);
  PruneLocked();
  return !ops_.empty();
}

absl::Status Stream::Error() {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

absl::Status Stream::TakeError() {
  const std::lock_guard lock(mutex_);
  PruneLocked();
  return std::exchange(first_error_, absl::OkStatus());
}

void Stream::WaitAll() {
  std::deque<std::shared_ptr<Operation>> ops;
  {
    const std::lock_guard lock(mutex_);
    ops = ops_;
  }
  for (const auto& op : ops) Wait(*op);
}

absl::Status Stream::StartLocked(std::thread* thread, const char* name, void (Stream::*body)()) {
  if (thread->joinable()) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(*thread, StartThread(name, [this, body] { (this->*body)(); }));
  return absl::OkStatus();
}

void Stream::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return (shut_ || !queue_.empty()) && !running_; });
    if (queue_.empty()) return;
    {
      const Queued next = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      lock.unlock();
      Run(next);
    }
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

void Stream::Run(const Queued& queued) {
  Operation& op = *queued.op;
  Operation* previous = queued.previous.get();
  // The daemon runs the operations of one communicator in their order.
  const bool may_follow =
      previous == nullptr || (&previous->comm() == &op.comm() && !op.is_staged());
  while (!may_follow && !previous->is_finished()) {
    previous->WaitSubmitted(MonotonicNanos() + kHealthCheckNs);
    const absl::Status health = op.is_finished() ? absl::OkStatus() : op.comm().Health();
    if (health.ok()) continue;
    const std::lock_guard lock(mutex_);
    op.Fail(health);
    changed_.notify_all();
  }
  if (op.is_finished()) return;
  if (op.is_staged()) {
    op.RunStaged();
  } else {
    op.SubmitWhenRoom();
  }
}

void Stream::Shutdown() {
  std::thread worker, submitter;
  {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    worker.swap(worker_);
    submitter.swap(submitter_);
  }
  changed_.notify_all();
  if (worker.joinable()) worker.join();
  if (submitter.joinable()) submitter.join();
  const std::lock_guard lock(mutex_);
  PruneLocked();
}

}  // namespace spccl::client
