#include "daemon/metrics/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace spccl::daemon::metrics {
namespace {

TEST(HistogramTest, AValueIsInTheFirstBucketWhoseBoundItDoesNotPass) {
  Histogram histogram(kDensityBounds);
  histogram.Observe(0);
  histogram.Observe(kDensityBounds[3]);
  histogram.Observe(std::nextafter(kDensityBounds[3], 1));
  histogram.Observe(1);
  EXPECT_EQ(histogram.count(0), 1);
  EXPECT_EQ(histogram.count(3), 1);
  EXPECT_EQ(histogram.count(4), 1);
  EXPECT_EQ(histogram.count(kDensityBounds.size()), 1);
}

TEST(HistogramTest, NotANumberCountsAsInfinite) {
  Histogram histogram(kDensityBounds);
  histogram.Observe(std::nan(""));
  EXPECT_EQ(histogram.count(kDensityBounds.size()), 1);
}

TEST(SharedTimesTest, NothingIsLostBetweenThreads) {
  constexpr uint64_t kThreads = 4, kTimes = 5000;
  SharedTimes times;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&times] {
      for (uint64_t i = 0; i < kTimes; ++i) times.Observe(20'000);  // 20 us: the second bucket
    });
  }
  for (uint64_t seen = 0; seen < kThreads * kTimes;) {  // a reader sees counts that never fall
    const uint64_t now = times.Read().count(1);
    ASSERT_GE(now, seen);
    seen = now;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NEAR(times.Read().sum(), kThreads * kTimes * 2e-5, 1e-9);
}

}  // namespace
}  // namespace spccl::daemon::metrics
