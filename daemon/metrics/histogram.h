// Counts in fixed buckets.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spccl::daemon::metrics {

inline constexpr size_t kMostBounds = 16;

// Upper bounds of buckets, ascending, each bucket with its bound; one more takes the rest.
inline constexpr std::array<double, 14> kSecondsBounds = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2,
                                                          3e-2, 0.1,  0.3,  1,    3,    10,   60};
inline constexpr std::array<double, 12> kDensityBounds = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1,
                                                          0.2,    0.3,   0.4,   0.5,  0.7,  0.9};

// A histogram as it was at one time. Not thread-safe.
class Histogram {
 public:
  // `bounds` must outlive it; at most kMostBounds.
  explicit constexpr Histogram(std::span<const double> bounds) : bounds_(bounds) {}

  // Some ten nanoseconds. Not a number counts as infinite.
  void Observe(double value) {
    ++counts_[BucketOf(bounds_, value)];
    sum_ += value;
  }

  std::span<const double> bounds() const { return bounds_; }
  // Of the bucket alone, not of those below. Bucket bounds().size() is the one without a bound.
  uint64_t count(size_t bucket) const { return counts_[bucket]; }
  double sum() const { return sum_; }

  static size_t BucketOf(std::span<const double> bounds, double value) {
    return static_cast<size_t>(std::find_if(bounds.begin(), bounds.end(),
                                            [value](double bound) { return value <= bound; }) -
                               bounds.begin());
  }

 private:
  friend class SharedTimes;
  std::span<const double> bounds_;
  std::array<uint64_t, kMostBounds + 1> counts_{};
  double sum_ = 0;
};

// A histogram of times that many threads add to while others read it; nobody waits. Thread-safe.
class SharedTimes {
 public:
  // Relaxed, all of it: counts that order nothing else.
  void Observe(int64_t ns) {
    const double seconds = static_cast<double>(ns) * 1e-9;
    counts_[Histogram::BucketOf(kSecondsBounds, seconds)].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
  }
  // The sum may be ahead of the counts, or behind, by what is being added.
  Histogram Read() const {
    Histogram read(kSecondsBounds);
    for (size_t i = 0; i < counts_.size(); ++i) {
      read.counts_[i] = counts_[i].load(std::memory_order_relaxed);
    }
    read.sum_ = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
    return read;
  }

 private:
  std::array<std::atomic<uint64_t>, kSecondsBounds.size() + 1> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace spccl::daemon::metrics
