#include "daemon/gpu_closer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace spccl::daemon {
namespace {

// How soon what has to wait for ranks is looked at again: while an operation runs, of which the
// ranks were waited for, they are not.
constexpr std::chrono::milliseconds kLookAgain{1};

// A GPU that has failed waits for nobody.
bool MayClose(const runtime::Gpu& gpu) {
  return gpu.may_free() || !gpu.status().ok();
}

}  // namespace

GpuCloser::GpuCloser() : thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "spccl-closer");
}

GpuCloser::~GpuCloser() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void GpuCloser::Defer(const runtime::Gpu& gpu, std::function<void()> close) {
  const std::lock_guard lock(mutex_);
  deferred_.push_back({.gpu = &gpu, .close = std::move(close)});
  changed_.notify_one();
}

void GpuCloser::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto next = std::find_if(deferred_.begin(), deferred_.end(), [this](const Deferred& one) {
      return stopping_ || MayClose(*one.gpu);
    });
    if (next != deferred_.end()) {
      std::function<void()> close = std::move(next->close);
      deferred_.erase(next);
      lock.unlock();
      close();
      close = nullptr;
      lock.lock();
    } else if (!deferred_.empty()) {
      changed_.wait_for(lock, kLookAgain);
    } else if (stopping_) {
      return;
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace spccl::daemon
