#include "collective/runtime/cuda/path_rates.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

constexpr uint64_t kSlice = uint64_t{2} << 20;
constexpr uint64_t kBytes = uint64_t{256} << 20;
constexpr PathRates::Kind Of(uint64_t bytes) {
  return {.bytes = bytes};
}

// As if the paths had these rates, in bytes per second.
PathRates::Times Take(uint64_t bytes, uint64_t host_bytes, double device_rate, double host_rate) {
  PathRates::Times times{.device_bytes = bytes - host_bytes, .host_bytes = host_bytes};
  times.device_ns =
      static_cast<int64_t>(static_cast<double>(times.device_bytes) / device_rate * 1e9);
  times.host_ns = static_cast<int64_t>(static_cast<double>(host_bytes) / host_rate * 1e9);
  return times;
}

TEST(PathRatesTest, MeasuresTheGpusThenTriesTheHostThenSplits) {
  PathRates rates;
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), 0U);
  rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 40e9));
  const uint64_t tried = rates.HostBytes(Of(kBytes), kSlice, true);
  EXPECT_EQ(tried, kBytes / 8);
  rates.Note(Of(kBytes), Take(kBytes, tried, 100e9, 40e9));
  const uint64_t split = rates.HostBytes(Of(kBytes), kSlice, true);
  EXPECT_NEAR(static_cast<double>(split), kBytes * 40.0 / 140, kSlice);
  EXPECT_EQ(split % kSlice, 0U);
  // The same question has the same answer until something new is known.
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), split);
  // Another size is measured by itself.
  EXPECT_EQ(rates.HostBytes(Of(4 * kBytes), kSlice, true), 0U);
}

TEST(PathRatesTest, AHostThatDoesNotPayIsTriedNowAndThen) {
  PathRates rates;
  uint32_t tried = 0;
  for (uint32_t i = 0; i < 2 * PathRates::kTryEvery + 10; ++i) {
    const uint64_t host = rates.HostBytes(Of(kBytes), kSlice, true);
    if (host > 0) ++tried;
    rates.Note(Of(kBytes), Take(kBytes, host, 400e9, 4e9));
  }
  EXPECT_EQ(tried, 3U);
}

TEST(PathRatesTest, ATryThatCameToNothingIsNotRepeatedAtOnce) {
  PathRates rates;
  uint32_t tried = 0;
  for (uint32_t i = 0; i < PathRates::kTryEvery; ++i) {
    if (rates.HostBytes(Of(kBytes), kSlice, true) > 0) ++tried;
    rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));  // there was no pinned memory
  }
  EXPECT_EQ(tried, 1U);
}

TEST(PathRatesTest, FollowsWhatChanges) {
  PathRates rates;
  for (int i = 0; i < 3; ++i) {
    rates.Note(Of(kBytes), Take(kBytes, rates.HostBytes(Of(kBytes), kSlice, true), 100e9, 50e9));
  }
  for (int i = 0; i < 30; ++i) {
    rates.Note(Of(kBytes), Take(kBytes, rates.HostBytes(Of(kBytes), kSlice, true), 100e9, 25e9));
  }
  EXPECT_NEAR(static_cast<double>(rates.HostBytes(Of(kBytes), kSlice, true)), kBytes * 0.2, kSlice);
}

TEST(PathRatesTest, WhatWasCompressedGoesOverTheGpusAlone) {
  PathRates rates;
  PathRates::Times sparse = Take(kBytes, 0, 900e9, 1);
  sparse.dense = false;
  rates.Note(Of(kBytes), sparse);
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, false), 0U);
  // Its rate is none of the links'.
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), 0U);
  rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));
  const uint64_t tried = rates.HostBytes(Of(kBytes), kSlice, false);
  EXPECT_GT(tried, 0U);
  rates.Note(Of(kBytes), Take(kBytes, tried, 100e9, 50e9));
  rates.Note(Of(kBytes), sparse);
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, false), 0U);
  EXPECT_GT(rates.HostBytes(Of(kBytes), kSlice, true), 0U);
}

TEST(PathRatesTest, SmallOnesAndOtherGpusAreOthers) {
  PathRates rates;
  EXPECT_FALSE(rates.Covers(PathRates::kLeastBytes - 1));
  EXPECT_TRUE(rates.Covers(PathRates::kLeastBytes));
  rates.Note({.gpus = {0, 1}, .bytes = kBytes}, Take(kBytes, 0, 100e9, 1));
  EXPECT_EQ(rates.HostBytes({.gpus = {0, 2}, .bytes = kBytes}, kSlice, true), 0U);
  EXPECT_GT(rates.HostBytes({.gpus = {0, 1}, .bytes = kBytes}, kSlice, true), 0U);
}

TEST(PathRatesTest, AForcedShareIsWholeSlicesAndLeavesSomethingProperty) {
  std::mt19937_64 random(TestSeed());
  EXPECT_FALSE(PathRates(0.0).Covers(kBytes));
  for (int round = 0; round < 1000; ++round) {
    const double share = static_cast<double>(1 + random() % 99) / 100;
    const uint64_t slice = uint64_t{64} << random() % 10;
    const uint64_t bytes = random() % 1'000'000;
    PathRates rates(share);
    const uint64_t host = rates.HostBytes(Of(bytes), slice, false);
    EXPECT_EQ(host % slice, 0U);
    if (bytes > slice) {
      EXPECT_GT(host, 0U);
      EXPECT_LT(host, bytes);
    } else {
      EXPECT_EQ(host, 0U);
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
