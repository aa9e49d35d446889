// The thread that does what must not hold up the core thread: unmapping.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/memory.h"

namespace spccl::daemon {

// Whoever drops the last reference, on whatever thread, the memory is unmapped by the reaper.
using MappingRef = std::shared_ptr<const SharedMapping>;

class Reaper {
 public:
  Reaper();
  // Does all that was deferred, then ends. Every MappingRef must have been dropped.
  ~Reaper();

  // Takes the mapping over. Thread-safe.
  MappingRef Own(SharedMapping mapping);
  // Runs `fn` on the reaper's thread, in the order of the calls. Thread-safe; never blocks.
  void Defer(std::function<void()> fn);

  // Bytes and mappings that are mapped now: counted down after the memory is unmapped, not before.
  uint64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_acquire); }
  uint32_t mappings() const { return mappings_.load(std::memory_order_acquire); }

 private:
  void Run();

  // Release on the way down, acquire by readers: who sees the count back sees the memory gone.
  std::atomic<uint64_t> mapped_bytes_{0};
  std::atomic<uint32_t> mappings_{0};
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> deferred_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spccl::daemon
