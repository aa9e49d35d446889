// QSGD through whole plans.
#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lossy_layout.h"
#include "tests/collective/runtime/lossy_case.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

constexpr Format kFormats[] = {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8};

// Of numbers around 0, of which so many are not zeros.
template <class T>
std::vector<Bytes> NormalInputs(const Case& c, double density, std::mt19937_64* random) {
  std::normal_distribution<double> noise;
  std::bernoulli_distribution is_there(density);
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    std::vector<T> x(c.op.count);
    for (T& value : x) value = is_there(*random) ? static_cast<T>(noise(*random)) : T{0};
    inputs.push_back(BytesOf(x));
  }
  return inputs;
}

Case FourNodes(uint64_t count, policy::Lossy lossy) {
  Case c;
  c.algorithm = Algorithm::kSplit;
  c.op = {.kind = OpKind::kAllReduce, .count = count};
  c.nodes = OneRankANode(4);
  c.lossy = lossy;
  c.slice_bytes = size_t{32} << 10;
  return c;
}

Outcome RunAlike(const Case& c, const std::vector<Bytes>& inputs) {
  Outcome outcome;
  RunCase(c, inputs, &outcome);
  ExpectAllAlike(c, outcome.received);
  return outcome;
}

// SparCML's dense phase: partial sums travel exactly, the results once, in levels.
TEST(LossyQsgdPlanTest, QuantisesTheAllGatherOfAnAllReduce) {
  std::mt19937_64 random(TestSeed());
  constexpr uint64_t kCount = 40000;
  const std::vector<Bytes> inputs = NormalInputs<float>(FourNodes(kCount, {}), 1, &random);
  std::vector<double> sums(kCount);
  for (const Bytes& input : inputs) {
    for (size_t i = 0; i < kCount; ++i) sums[i] += double{At<float>(input, i)};
  }
  for (const Format format : kFormats) {
    SCOPED_TRACE(NameOf(format));
    const Outcome first = RunAlike(FourNodes(kCount, {.format = format, .seed = 1}), inputs);
    const Outcome again = RunAlike(FourNodes(kCount, {.format = format, .seed = 1}), inputs);
    const Outcome other = RunAlike(FourNodes(kCount, {.format = format, .seed = 2}), inputs);
    EXPECT_TRUE(first.received == again.received) << "the seed makes it reproducible";
    EXPECT_FALSE(first.received == other.received);
    const OpStats& stats = first.stats;
    const auto lossy = static_cast<size_t>(policy::Reason::kLossy);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kReduceScatter)][lossy], 0u);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kAllGather)][lossy],
              stats.sends_by_format[static_cast<size_t>(format)]);
    EXPECT_GT(stats.sends_by_format[static_cast<size_t>(format)], 0u);
    const double scale = 12.0 / ((1 << (QsgdBits(format) - 1)) - 1);  // of sums of four up to 3
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(At<float>(first.received[0], i), sums[i], scale * 2);
    }
  }
}

// The daemon cuts parts into other slices once it knows how sparse operations are and what links
// and kernels cost, and both come at a time of their own.
template <class T>
void ExpectTheSameInAllSlices(Case c, std::mt19937_64* random) {
  const std::vector<Bytes> inputs = NormalInputs<T>(c, 0.7, random);
  Outcome first;
  for (const size_t slice_bytes : {4 << 10, 13'000, 1 << 20}) {
    c.slice_bytes = slice_bytes;
    SCOPED_TRACE(Describe(c));
    Outcome outcome = RunAlike(c, inputs);
    EXPECT_GT(outcome.stats.sends_by_format[static_cast<size_t>(c.lossy.format)], 0u);
    if (first.received.empty()) first = outcome;
    EXPECT_TRUE(outcome.received == first.received);
  }
}

TEST(LossyQsgdPlanTest, SlicesDoNotChangeTheResult) {
  std::mt19937_64 random(TestSeed());
  size_t round = 0;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTwoLevelRing, Algorithm::kSplit,
                                    Algorithm::kHalvingDoubling}) {
    // The second: parts that end in a bucket of 16 elements or fewer, which alone would be smaller
    // as they are.
    for (const uint64_t count : {uint64_t{30'001}, 4 * (8 * kBucketElements + 16) - 9}) {
      Case c = FourNodes(count, {.format = kFormats[round++ % 3], .seed = random()});
      c.algorithm = algorithm;
      c.nodes = {0, 0, 1, 2, 3, 3};
      c.threads = 2;
      ExpectTheSameInAllSlices<float>(c, &random);
      c.op.dtype = DType::kFloat64;
      ExpectTheSameInAllSlices<double>(c, &random);
      if (HasFailure()) return;
    }
  }
}

// Parts of dense results may end in a few elements that are zeros but for two.
TEST(LossyQsgdPlanTest, NorDoesWhatIsLeftOfAPart) {
  constexpr uint64_t kPart = 2 * kBucketElements + 16;
  for (const Format format : kFormats) {
    Case c = FourNodes(4 * kPart, {.format = format});
    std::vector<float> x(c.op.count, 1);
    for (uint64_t i = 0; i < x.size(); ++i) {
      if (i % kPart >= 2 * kBucketElements + 2) x[i] = 0;
      if (i % kPart == 2 * kBucketElements + 1) x[i] = 0.3F;
    }
    const std::vector<Bytes> inputs(c.ranks(), BytesOf(x));
    const Outcome whole = RunAlike(c, inputs);
    c.slice_bytes = 2 * kBucketElements * sizeof(float);
    EXPECT_TRUE(RunAlike(c, inputs).received == whole.received) << NameOf(format);
  }
}

// Equal elements in four parts of five slices: in each bucket about half come to either of their
// levels, and no two buckets draw alike.
TEST(LossyQsgdPlanTest, PartsAndSlicesDrawIndependently) {
  constexpr uint64_t kBuckets = 4 * 5 * 2;
  Case c = FourNodes(kBuckets * kBucketElements, {.format = Format::kQsgd2, .seed = 3});
  c.slice_bytes = 2 * kBucketElements * sizeof(float);
  std::vector<float> x(c.op.count, 0.125F);
  for (uint64_t i = 0; i < x.size(); i += kBucketElements) x[i] = 0.25F;
  const Outcome outcome = RunAlike(c, std::vector<Bytes>(c.ranks(), BytesOf(x)));
  std::vector<float> y(c.op.count);
  std::memcpy(y.data(), outcome.received[0].data(), outcome.received[0].size());
  for (uint64_t a = 0; a < kBuckets; ++a) {
    const auto bucket = y.begin() + static_cast<ptrdiff_t>(a * kBucketElements);
    // Half of them, in six standard deviations.
    EXPECT_NEAR(std::count(bucket, bucket + kBucketElements, 1.0F), 512, 96) << a;
    for (uint64_t b = 0; b < a; ++b) {
      uint64_t alike = 0;
      for (uint64_t i = 1; i < kBucketElements; ++i) {
        alike += y[a * kBucketElements + i] == y[b * kBucketElements + i] ? 1 : 0;
      }
      EXPECT_NEAR(static_cast<double>(alike), 512, 96) << a << " and " << b;
    }
  }
}

// Operations of a few elements, and results that have stayed sparse, are smaller as they are.
TEST(LossyQsgdPlanTest, WhatWouldNotBecomeSmallerStaysExact) {
  std::mt19937_64 random(TestSeed());
  for (const auto& [count, density] : {std::pair{2, 1.0}, std::pair{32 * 1024, 0.005}}) {
    for (const Format format : kFormats) {
      const Case c = FourNodes(static_cast<uint64_t>(count), {.format = format});
      const std::vector<Bytes> inputs = NormalInputs<float>(c, density, &random);
      const Outcome outcome = RunAlike(c, inputs);
      EXPECT_EQ(outcome.stats.sends_by_format[static_cast<size_t>(format)], 0u);
      EXPECT_TRUE(outcome.received == RunAlike(FourNodes(c.op.count, {}), inputs).received);
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
