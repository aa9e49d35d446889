// Work on GPUs is written down in the order in which it is done, as coroutines: what they await is
// that a thread is theirs, or that what they have enqueued has ended. No thread waits meanwhile.
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "collective/runtime/cuda/gpus.h"

namespace spccl::runtime {

// NOLINTBEGIN(readability-identifier-naming): as the language has it

// A coroutine that nobody waits for: runs until it awaits something, and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    [[noreturn]] void unhandled_exception() const { std::terminate(); }
  };
};

// co_await ThreadOf(gpu): goes on on its issuing thread.
class ThreadOf {
 public:
  explicit ThreadOf(Gpu& gpu) : gpu_(gpu) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> caller) const {
    gpu_.Post([caller] { caller.resume(); });
  }
  void await_resume() const noexcept {}

 private:
  Gpu& gpu_;
};

// status = co_await EndOf(gpu, stream): on its issuing thread; goes on there when all that has been
// enqueued on the stream so far has ended, or the GPU has failed.
class EndOf {
 public:
  // `waits`: as Gpu::WhenEnded has it.
  EndOf(Gpu& gpu, void* stream, std::function<bool()> waits = nullptr)
      : gpu_(gpu), stream_(stream), waits_(std::move(waits)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> caller) {
    // The awaiter lives in the coroutine, until it goes on.
    gpu_.WhenEnded(stream_, std::move(waits_), [this, caller](const absl::Status& status) {
      status_ = status;
      caller.resume();
    });
  }
  absl::Status await_resume() noexcept { return std::move(status_); }

 private:
  Gpu& gpu_;
  void* const stream_;
  std::function<bool()> waits_;
  absl::Status status_;
};

// co_await Polled(gpu, check): goes on on the issuing thread once `check` says true.
class Polled {
 public:
  Polled(Gpu& gpu, std::function<bool()> check) : gpu_(gpu), check_(std::move(check)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> caller) {
    gpu_.PollUntil([check = std::move(check_), caller] {
      if (!check()) return false;
      caller.resume();
      return true;
    });
  }
  void await_resume() const noexcept {}

 private:
  Gpu& gpu_;
  std::function<bool()> check_;
};
// Several parts of some work, on several GPUs. Each part keeps it.
class Join {
 public:
  Join(Gpu& home, size_t parts) : home_(home), left_(parts) {}
  // A part has ended. Thread-safe.
  void Arrive(const absl::Status& status) {
    std::coroutine_handle<> caller;
    {
      const std::lock_guard lock(mutex_);
      status_.Update(status);
      if (--left_ == 0) caller = caller_;
    }
    if (caller) home_.Post([caller] { caller.resume(); });
  }

 private:
  friend class Arrived;
  Gpu& home_;
  std::mutex mutex_;
  std::coroutine_handle<> caller_;
  size_t left_;
  absl::Status status_;
};

// status = co_await Arrived(join): on the home GPU's issuing thread; goes on there when all parts
// have arrived, with the first error.
class Arrived {
 public:
  explicit Arrived(std::shared_ptr<Join> join) : join_(std::move(join)) {}
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> caller) {
    const std::lock_guard lock(join_->mutex_);
    join_->caller_ = caller;
    return join_->left_ > 0;
  }
  absl::Status await_resume() {
    const std::lock_guard lock(join_->mutex_);
    return join_->status_;
  }

 private:
  const std::shared_ptr<Join> join_;
};
// NOLINTEND(readability-identifier-naming)

}  // namespace spccl::runtime
