// Waiting for what comes within microseconds, without a sleep and a wake-up, on a core that others
// may have meanwhile.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace spccl {

// Looks again and again, and yields the core between two looks. To whom the core is yielded is up
// to the kernel: where another thread computes on it, that one may keep it for milliseconds (on
// Linux 6.18 the yielder forfeits its slice), which a sleeper that is woken would not wait. So
// where that happens again and again there is no spinning for a while. Thread-safe; threads that
// share one share what they learn. Zero bytes are a new one.
class YieldSpin {
 public:
  // True as soon as done() is. False: not within `limit_ns`, or spinning does not pay now.
  template <typename Done>
  bool Until(Done done, int64_t limit_ns) {
    int64_t now_ns = MonotonicNanos();
    if (Rests(now_ns)) return done();
    const int64_t end_ns = now_ns + limit_ns;
    bool lost_core = false;
    while (!done()) {
      if (now_ns > end_ns || lost_core) return false;
      ::sched_yield();
      const int64_t before_ns = now_ns;
      now_ns = MonotonicNanos();
      lost_core = now_ns - before_ns > kLongYieldNs;
      if (lost_core) NoteLoss(now_ns);
    }
    NoteGain();
    return true;
  }

  // What Until() learns, and goes by. Relaxed, all: hints, which may be missed now and then, and
  // order nothing.
  bool Rests(int64_t now_ns) const {
    return now_ns < rests_until_ns_.load(std::memory_order_relaxed);
  }
  void NoteLoss(int64_t now_ns) {
    const int32_t losses = losses_.load(std::memory_order_relaxed) + kLoss;
    const bool too_many = losses >= kMostLosses;
    // After the rest one more is enough.
    losses_.store(too_many ? kMostLosses - kLoss : losses, std::memory_order_relaxed);
    if (too_many) rests_until_ns_.store(now_ns + kRestNs, std::memory_order_relaxed);
  }
  void NoteGain() {
    const int32_t losses = losses_.load(std::memory_order_relaxed);
    if (losses > 0) losses_.store(losses - 1, std::memory_order_relaxed);
  }

  // What a loss weighs in gains: idle cores are lost once in a hundred, to the kernel's own work;
  // those on which somebody computes, every other time.
  static constexpr int32_t kLoss = 8;
  static constexpr int32_t kMostLosses = 4 * kLoss;
  // So that the look after it, which may cost milliseconds, is one in a thousand small operations.
  static constexpr int64_t kRestNs = 1'000'000'000;

 private:
  // More than it takes threads that wait for each other to take turns.
  static constexpr int64_t kLongYieldNs = 100'000;

  std::atomic<int64_t> rests_until_ns_{0};
  std::atomic<int32_t> losses_{0};
};

}  // namespace spccl
