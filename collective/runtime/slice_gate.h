// Hands out the slices 0 .. total-1 of an operation once each, and finds the one call that ends it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

namespace spccl::runtime {

// Thread-safe and lock-free. Every slice ends exactly once: by Complete() of the thread that
// claimed it, or by Close() if nobody did. Exactly one of all these calls returns true: the one
// that ended the last slice.
class SliceGate {
 public:
  explicit SliceGate(uint64_t total) : total_(total) {}

  uint64_t total() const { return total_; }

  // Relaxed: a claim publishes nothing; what slices write is published by Complete().
  std::optional<uint64_t> Claim() {
    const uint64_t slice = next_.fetch_add(1, std::memory_order_relaxed);
    if (slice >= total_) return std::nullopt;
    return slice;
  }

  // How many have been claimed; total() or more: all. For people: relaxed, as Claim().
  uint64_t next() const { return next_.load(std::memory_order_relaxed); }

  bool Complete() { return End(1); }

  // No slice is claimed after this. Idempotent.
  bool Close() {
    const uint64_t first = std::min(next_.exchange(total_, std::memory_order_relaxed), total_);
    return first < total_ && End(total_ - first);
  }

 private:
  // Release: what the slice wrote comes before its end. Acquire: whoever ends the last one sees
  // what all of them wrote.
  bool End(uint64_t slices) {
    return ended_.fetch_add(slices, std::memory_order_acq_rel) + slices == total_;
  }

  const uint64_t total_;
  // Two lines: claims do not fight with ends.
  alignas(64) std::atomic<uint64_t> next_{0};
  alignas(64) std::atomic<uint64_t> ended_{0};
};

}  // namespace spccl::runtime
