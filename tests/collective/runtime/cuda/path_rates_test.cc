#include "collective/runtime/cuda/path_rates.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

constexpr uint64_t kSlice = uint64_t{2} << 20;
constexpr uint64_t kBytes = uint64_t{256} << 20;
PathRates::Kind Of(uint64_t bytes) {
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

TEST(PathRatesTest, AHostThatDoesNotPayIsTriedNowAndThenWithLittle) {
  PathRates rates;
  uint32_t tried = 0;
  for (uint32_t i = 0; i < 2 * PathRates::kTryEvery + 10; ++i) {
    const uint64_t host = rates.HostBytes(Of(kBytes), kSlice, true);
    if (host > 0) {
      EXPECT_EQ(host, (tried == 0 ? 16 : 4) * kSlice);
      ++tried;
    }
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

TEST(PathRatesTest, ATryWithLittleMemoryIsRepeatedAtOnceAndSaysNothing) {
  PathRates rates;
  rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));
  PathRates::Times slow = Take(kBytes, 16 * kSlice, 100e9, 1e9);
  slow.warms = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), 16 * kSlice);
    rates.Note(Of(kBytes), slow);
  }
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), 16 * kSlice);
  rates.Note(Of(kBytes), Take(kBytes, 16 * kSlice, 100e9, 50e9));
  EXPECT_NEAR(static_cast<double>(rates.HostBytes(Of(kBytes), kSlice, true)), kBytes / 3.0, kSlice);
  // Not for ever.
  PathRates others;
  others.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));
  uint32_t tries = 0;
  for (uint32_t i = 0; i < PathRates::kTryEvery; ++i) {
    if (others.HostBytes(Of(kBytes), kSlice, true) == 0) continue;
    ++tries;
    others.Note(Of(kBytes), slow);
  }
  EXPECT_EQ(tries, 5U);
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

TEST(PathRatesTest, AFirstTryOfALargeOneIsBounded) {
  PathRates rates;
  const uint64_t large = uint64_t{8} << 30;
  rates.Note(Of(large), Take(large, 0, 100e9, 1));
  EXPECT_EQ(rates.HostBytes(Of(large), kSlice, true), 16 * kSlice);
}

// How many of 1000 operations go over the host, if `take` says what an operation takes.
template <class TakeFn>
uint32_t SplitOnes(PathRates* rates, TakeFn take) {
  uint32_t split = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t host = rates->HostBytes(Of(kBytes), kSlice, true);
    if (host > 0) ++split;
    rates->Note(Of(kBytes), take(host));
  }
  return split;
}

// Both paths go over the same bus: together they are as fast as one of them alone.
TEST(PathRatesTest, ASharedBottleneckIsNotSplit) {
  PathRates rates;
  const auto take = [](uint64_t host) {
    constexpr double kBus = 25e9;
    return host == 0 ? Take(kBytes, 0, kBus, 1) : Take(kBytes, host, 0.6 * kBus, 0.4 * kBus);
  };
  // A try, and then as many as it is judged by, each time.
  EXPECT_LE(SplitOnes(&rates, take), 4 * (1 + PathRates::kJudgedBy));
}

TEST(PathRatesTest, WhatGainsIsSplitAndTheLinksAreAskedNowAndThen) {
  PathRates rates;
  double links = 100e9;
  const auto take = [&](uint64_t host) {
    return host == 0 ? Take(kBytes, 0, links, 1) : Take(kBytes, host, 95e9, 40e9);
  };
  const uint32_t split = SplitOnes(&rates, take);
  EXPECT_GE(split, 990U);
  EXPECT_LT(split, 999U);
  // The links get faster while they are alone: it is seen, if late.
  links = 200e9;
  for (int i = 0; i < 3; ++i) (void)SplitOnes(&rates, take);
  EXPECT_LE(SplitOnes(&rates, take), 4 * (1 + PathRates::kJudgedBy));
}

TEST(PathRatesTest, OneSlowOperationWeighsWhatItTook) {
  PathRates rates;
  rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));
  const uint64_t tried = rates.HostBytes(Of(kBytes), kSlice, true);
  // The mean of 1/10 and 3/10 ns a byte is that of 5e9 bytes a second, not of 6.7e9.
  rates.Note(Of(kBytes), Take(kBytes, tried, 10e9, 10e9));
  rates.Note(Of(kBytes), Take(kBytes, tried, 10e9, 10e9 / 3));
  EXPECT_NEAR(static_cast<double>(rates.HostBytes(Of(kBytes), kSlice, true)), kBytes / 3.0, kSlice);
}

TEST(PathRatesTest, WhatWasCompressedGoesOverTheGpusAlone) {
  PathRates rates;
  PathRates::Times sparse = Take(kBytes, 0, 900e9, 1);
  sparse.dense = false;
  rates.Note(Of(kBytes), sparse);
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, false), 0U);
  // Its rate is none of the links'.
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, true), 0U);
  for (uint32_t dense = 0; dense < PathRates::kDenseInARow; ++dense) {
    EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, false), 0U);
    rates.Note(Of(kBytes), Take(kBytes, 0, 100e9, 1));
  }
  const uint64_t tried = rates.HostBytes(Of(kBytes), kSlice, false);
  EXPECT_GT(tried, 0U);
  rates.Note(Of(kBytes), Take(kBytes, tried, 100e9, 50e9));
  rates.Note(Of(kBytes), sparse);
  EXPECT_EQ(rates.HostBytes(Of(kBytes), kSlice, false), 0U);
  EXPECT_GT(rates.HostBytes(Of(kBytes), kSlice, true), 0U);
}

// A share that an operator has chosen, too.
TEST(PathRatesTest, DenseAndSparseInTurnGoOverTheGpusAlone) {
  PathRates measures, forced({.share = 0.5});
  for (int i = 0; i < 100; ++i) {
    PathRates::Times times = Take(kBytes, 0, 100e9, 1);
    times.dense = i % 2 == 0;
    for (PathRates* const rates : {&measures, &forced}) {
      EXPECT_EQ(rates->HostBytes(Of(kBytes), kSlice, false), 0U);
      rates->Note(Of(kBytes), times);
    }
  }
  EXPECT_EQ(forced.HostBytes(Of(kBytes), kSlice, true), kBytes / 2);
}

TEST(PathRatesTest, SmallOnesAndOthersAreOthers) {
  PathRates rates;
  EXPECT_FALSE(rates.Covers(PathRates::kLeastBytes - 1));
  EXPECT_TRUE(rates.Covers(PathRates::kLeastBytes));
  const PathRates::Kind kind{.communicator = 7, .gpus = {0, 1}, .ranks = 2, .bytes = kBytes};
  rates.Note(kind, Take(kBytes, 0, 100e9, 1));
  std::vector<PathRates::Kind> others(4, kind);
  others[0].communicator = 8;
  others[1].gpus = {0, 2};
  others[2].ranks = 4;
  others[3].dtype = DType::kFloat16;
  for (const PathRates::Kind& other : others) {
    EXPECT_EQ(rates.HostBytes(other, kSlice, true), 0U);
  }
  EXPECT_GT(rates.HostBytes(kind, kSlice, true), 0U);
}

TEST(PathRatesTest, WhatWasIdleForLongestIsForgotten) {
  PathRates rates;
  const auto of = [](uint64_t communicator) {
    return PathRates::Kind{.communicator = communicator, .bytes = kBytes};
  };
  for (uint64_t communicator = 0; communicator < 5000; ++communicator) {
    rates.Note(of(0), Take(kBytes, 0, 100e9, 1));
    rates.Note(of(communicator), Take(kBytes, 0, 100e9, 1));
  }
  EXPECT_GT(rates.HostBytes(of(0), kSlice, true), 0U);
  EXPECT_EQ(rates.HostBytes(of(1), kSlice, true), 0U);
  EXPECT_GT(rates.HostBytes(of(4999), kSlice, true), 0U);
}

TEST(PathRatesTest, AForcedShareHoldsForLargeOnesOnly) {
  PathRates rates({.share = 0.5});
  EXPECT_FALSE(rates.Covers(PathRates::kLeastBytes - 1));
  EXPECT_EQ(rates.HostBytes(Of(PathRates::kLeastBytes - 1), kSlice, true), 0U);
  EXPECT_EQ(rates.HostBytes(Of(PathRates::kLeastBytes), kSlice, true), PathRates::kLeastBytes / 2);
}

TEST(PathRatesTest, AForcedShareIsWholeSlicesAndNoMoreProperty) {
  std::mt19937_64 random(TestSeed());
  EXPECT_FALSE(PathRates({.share = 0.0}).Covers(kBytes));
  for (int round = 0; round < 1000; ++round) {
    const double share = static_cast<double>(1 + random() % 99) / 100;
    const uint64_t slice = uint64_t{64} << random() % 10;
    const uint64_t bytes = random() % 1'000'000;
    PathRates rates({.share = share, .least_bytes = 0});
    const uint64_t host = rates.HostBytes(Of(bytes), slice, true);
    EXPECT_EQ(host % slice, 0U);
    EXPECT_LE(static_cast<double>(host), share * static_cast<double>(bytes));
    EXPECT_GT(static_cast<double>(host + 2 * slice), share * static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace spccl::runtime
