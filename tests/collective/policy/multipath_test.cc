#include "collective/policy/multipath.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSlice = kMiB;

struct Paths {
  Path device, host;
};

Paths RandomPaths(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {  // evenly by magnitude
    return low * std::pow(high / low, std::uniform_real_distribution<double>()(random));
  };
  Paths paths;
  paths.device = {between(1e-6, 1e-3), between(1e9, 1e12)};
  paths.host = {between(1e-6, 1e-2), between(1e8, 1e12)};
  return paths;
}

uint64_t RandomBytes(std::mt19937_64& random) {
  return static_cast<uint64_t>(
      std::exp2(std::uniform_real_distribution<double>(0, 34)(random)));  // 1 byte to 16 GiB
}

TEST(SplitPathsTest, ByHand) {
  // 100 bytes at 10 a second, or at 10 and 5 side by side: 66 and 2/3, 33 and 1/3.
  const PathSplit split = SplitPaths({0, 10}, {0, 5}, 100, 1);
  EXPECT_EQ(split.host_bytes, 33U);
  EXPECT_EQ(split.device_bytes, 67U);
  EXPECT_DOUBLE_EQ(split.seconds, 6.7);
  EXPECT_DOUBLE_EQ(split.alone_seconds, 10);
  // In slices of 20 both end best with 20 over the host: 8 s; 40 would take it 8 s too.
  EXPECT_EQ(SplitPaths({0, 10}, {0, 5}, 100, 20).host_bytes, 20U);
}

TEST(SplitPathsTest, HostBehindAFastLinkGivesThePapersGain) {
  // multipath-allreduce.txt, section III: up to 1.45 times. It takes a host path of 0.45 the
  // links'.
  const PathSplit split = SplitPaths({0, 100e9}, {0, 45e9}, 512 * kMiB, 256 << 10);
  EXPECT_NEAR(split.alone_seconds / split.seconds, 1.45, 0.005);
}

TEST(SplitPathsTest, NothingIsLostAndNothingIsSlowerThanTheDevicesAlone) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 20000; ++i) {
    const Paths paths = RandomPaths(random);
    const uint64_t bytes = RandomBytes(random);
    const PathSplit split = SplitPaths(paths.device, paths.host, bytes, kSlice);
    ASSERT_EQ(split.host_bytes + split.device_bytes, bytes);
    ASSERT_EQ(split.host_bytes % kSlice, 0U);
    ASSERT_LE(split.seconds, split.alone_seconds);
    ASSERT_DOUBLE_EQ(split.alone_seconds, SecondsOf(paths.device, static_cast<double>(bytes)));
    ASSERT_DOUBLE_EQ(split.seconds,
                     std::max(SecondsOf(paths.device, static_cast<double>(split.device_bytes)),
                              SecondsOf(paths.host, static_cast<double>(split.host_bytes))));
  }
}

TEST(SplitPathsTest, NoOtherNumberOfSlicesEndsEarlier) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 300; ++i) {
    const Paths paths = RandomPaths(random);
    const uint64_t bytes = RandomBytes(random) % (500 * kMiB) + 1;
    const PathSplit split = SplitPaths(paths.device, paths.host, bytes, kSlice);
    if (split.host_bytes == 0) continue;  // it may not have been worth it
    for (uint64_t host = 0; host <= bytes; host += kSlice) {
      const double device_seconds = SecondsOf(paths.device, static_cast<double>(bytes - host));
      const double host_seconds = SecondsOf(paths.host, static_cast<double>(host));
      ASSERT_LE(split.seconds, std::max(device_seconds, host_seconds)) << host << " of " << bytes;
    }
  }
}

TEST(SplitPathsTest, PathsEndTogetherButForASlice) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 5000; ++i) {
    const Paths paths = RandomPaths(random);
    const uint64_t bytes = RandomBytes(random);
    const PathSplit split = SplitPaths(paths.device, paths.host, bytes, kSlice);
    if (split.host_bytes == 0 || split.device_bytes < kSlice) continue;
    const double apart = SecondsOf(paths.device, static_cast<double>(split.device_bytes)) -
                         SecondsOf(paths.host, static_cast<double>(split.host_bytes));
    const double slice = kSlice / paths.device.rate + kSlice / paths.host.rate;
    // A first slice may be a bad fit and still better than none.
    if (split.host_bytes > kSlice) ASSERT_LE(std::abs(apart), slice * 1.001);
  }
}

TEST(SplitPathsTest, MoreBytesNeverMeanFewerOverTheHost) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 300; ++i) {
    const Paths paths = RandomPaths(random);
    uint64_t before = 0;
    for (uint64_t bytes = 1; bytes < 16ULL << 30; bytes += bytes / 37 + 1) {
      const uint64_t host = SplitPaths(paths.device, paths.host, bytes, kSlice).host_bytes;
      ASSERT_GE(host, before) << bytes;
      before = host;
    }
  }
}

TEST(SplitPathsTest, AFasterHostNeverGetsLess) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 2000; ++i) {
    Paths paths = RandomPaths(random);
    const uint64_t bytes = RandomBytes(random);
    const PathSplit slow = SplitPaths(paths.device, paths.host, bytes, kSlice);
    paths.host.rate *= 1.5;
    const PathSplit fast = SplitPaths(paths.device, paths.host, bytes, kSlice);
    ASSERT_GE(fast.host_bytes, slow.host_bytes);
    ASSERT_LE(fast.seconds, slow.seconds);
  }
}

TEST(SplitPathsTest, WhatDoesNotPayStaysWithTheDevices) {
  const Path device{20e-6, 100e9}, host{200e-6, 20e9};
  EXPECT_EQ(SplitPaths(device, host, 0, kSlice).host_bytes, 0U);
  EXPECT_EQ(SplitPaths(device, host, 16 * kMiB, kSlice).host_bytes, 0U);
  EXPECT_GT(SplitPaths(device, host, 256 * kMiB, kSlice).host_bytes, 0U);
  // However large: a host of 4% of the links' rate gains less than kLeastPathGain.
  EXPECT_EQ(SplitPaths({0, 100e9}, {0, 4e9}, uint64_t{64} << 30, kSlice).host_bytes, 0U);
  // No host path at all, or no whole slice.
  EXPECT_EQ(SplitPaths(device, {}, 256 * kMiB, kSlice).host_bytes, 0U);
  EXPECT_EQ(SplitPaths({0, 10}, {0, 10}, kSlice - 1, kSlice).host_bytes, 0U);
}

TEST(PathTest, DevicesAreBoundByTheirLinksOrByTheirKernels) {
  // Two GPUs: half the buffer comes in, is reduced, and half comes back.
  EXPECT_DOUBLE_EQ(DevicePath({2, 100e9, 1e12, 0}).rate, 100e9);
  // Four: 3/4 twice.
  EXPECT_DOUBLE_EQ(DevicePath({4, 150e9, 1e12, 0}).rate, 100e9);
  EXPECT_DOUBLE_EQ(DevicePath({4, 150e9, 20e9, 0}).rate, 80e9);
  EXPECT_EQ(DevicePath({1, 150e9, 20e9, 0}).rate, 0);
}

TEST(PathTest, HostIsAsFastAsItsSlowestStageOnceItIsFull) {
  const Path path =
      HostPath({.down_rate = 20, .up_rate = 25, .reduce_rate = 10, .seconds = 1}, 100);
  EXPECT_DOUBLE_EQ(path.rate, 10);
  // The first slice: 5 s down, 10 s in the threads, 4 s up; of which 10 are its bytes at the rate.
  EXPECT_DOUBLE_EQ(path.seconds, 1 + 5 + 4);
  EXPECT_DOUBLE_EQ(SecondsOf(path, 100), 1 + 5 + 10 + 4);
  EXPECT_EQ(HostPath({.down_rate = 20, .up_rate = 0, .reduce_rate = 10}, 100).rate, 0);
}

}  // namespace
}  // namespace spccl::policy
