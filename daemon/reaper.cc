#include "daemon/reaper.h"

#include <pthread.h>

#include <utility>

#include "base/status.h"

namespace spccl::daemon {

Reaper::Reaper() : thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "spccl-reaper");
}

Reaper::~Reaper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_one();
  thread_.join();
  SPCCL_CHECK(mappings() == 0);
}

MappingRef Reaper::Own(SharedMapping mapping) {
  mapped_bytes_.fetch_add(mapping.size_bytes(), std::memory_order_relaxed);
  mappings_.fetch_add(1, std::memory_order_relaxed);
  auto owned = std::make_unique<SharedMapping>(std::move(mapping));
  return MappingRef(owned.release(), [this](const SharedMapping* dropped) {
    Defer([this, dropped] {
      const size_t bytes = dropped->size_bytes();
      delete dropped;
      mapped_bytes_.fetch_sub(bytes, std::memory_order_release);
      mappings_.fetch_sub(1, std::memory_order_release);
    });
  });
}

void Reaper::Defer(std::function<void()> fn) {
  {
    std::lock_guard lock(mutex_);
    deferred_.push_back(std::move(fn));
  }
  ready_.notify_one();
}

void Reaper::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [this] { return stopping_ || !deferred_.empty(); });
    if (deferred_.empty()) return;
    const std::function<void()> fn = std::move(deferred_.front());
    deferred_.pop_front();
    lock.unlock();
    fn();
    lock.lock();
  }
}

}  // namespace spccl::daemon
