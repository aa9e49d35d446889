// First sends that are estimated in place of counted: what is sent and told is the same.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/host/codec.h"
#include "tests/collective/runtime/cluster.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

using policy::Codec;
using policy::Leaning;
using policy::Reason;

constexpr uint64_t kEstimated = 1 << 16;  // elements; of less all are counted

ClusterCase TwoNodes(Leaning usual, double sparsity) {
  ClusterCase c;
  c.algorithm = policy::Algorithm::kRecursiveDoubling;
  c.op = {.count = kEstimated};
  c.settings.codec = Codec::kAuto;
  c.habit = {usual, usual};
  c.sparsity = sparsity;
  c.slice_bytes = kEstimated * sizeof(float);
  c.seed = TestSeed();
  return c;
}

// Ones, but for what `zero` says.
std::vector<testing::Bytes> Ones(const ClusterCase& c, bool (*zero)(uint64_t)) {
  std::vector<testing::Bytes> inputs = InputsOf(c);
  for (testing::Bytes& input : inputs) {
    auto* const values = reinterpret_cast<float*>(input.data());
    for (uint64_t i = 0; i < kEstimated; ++i) values[i] = zero(i) ? 0.0F : 1.0F;
  }
  return inputs;
}

// What both nodes sent, after a look at the results.
OpStats SentBy(const ClusterCase& c, const std::vector<testing::Bytes>& inputs) {
  Cluster cluster(c, inputs);
  EXPECT_TRUE(cluster.Alternate());
  const std::vector<testing::Bytes> expected = testing::CollectiveOracle(c.op, inputs);
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto found = cluster.Received(rank);
    EXPECT_FALSE(testing::FirstDifference(c.op.dtype, found, expected[rank]).has_value());
  }
  return cluster.Stats();
}

uint64_t Nonzeros(const ClusterCase& c, const std::vector<testing::Bytes>& inputs) {
  uint64_t nnz = 0;
  for (const testing::Bytes& input : inputs) nnz += testing::OracleNonzeros(c.op.dtype, input);
  return nnz;
}

uint64_t Count(const OpStats& stats, Reason reason) {
  return stats.decisions[0][static_cast<size_t>(reason)];
}

TEST(EstimateTest, WhatIsSparseAsUsualIsCountedByItsEncoding) {
  for (const double sparsity : {0.9, 0.99, 0.9999, 1.0}) {
    const ClusterCase usual = TwoNodes(Leaning::kSparse, sparsity);
    const std::vector<testing::Bytes> inputs = InputsOf(usual);
    const OpStats stats = SentBy(usual, inputs);
    EXPECT_EQ(stats.input_nnz, Nonzeros(usual, inputs)) << sparsity;
    EXPECT_EQ(stats.input_elements, 2 * kEstimated);
    EXPECT_EQ(Count(stats, Reason::kFirst), 2U);
    EXPECT_LT(stats.wire_bytes, stats.dense_bytes);
  }
}

TEST(EstimateTest, WhatIsNotAsUsualIsCounted) {
  const ClusterCase dense = TwoNodes(Leaning::kSparse, 0);
  const std::vector<testing::Bytes> full = Ones(dense, [](uint64_t) { return false; });
  OpStats stats = SentBy(dense, full);
  EXPECT_EQ(Count(stats, Reason::kNoGain), 2U);
  EXPECT_EQ(stats.encoded[static_cast<size_t>(Format::kPici)].dense_bytes, 0U);
  EXPECT_EQ(stats.input_nnz, Nonzeros(dense, full));

  const ClusterCase sparse = TwoNodes(Leaning::kDense, 0.99);
  const std::vector<testing::Bytes> few = InputsOf(sparse);
  stats = SentBy(sparse, few);
  EXPECT_EQ(Count(stats, Reason::kFirst), 2U);
  EXPECT_EQ(stats.input_nnz, Nonzeros(sparse, few));
}

TEST(EstimateTest, WhatAnEstimateTookForSparseGoesDenseInTheEnd) {
  const ClusterCase c = TwoNodes(Leaning::kSparse, 0);
  // Zeros where an estimate looks: a block of 256 elements in 17.
  const auto inputs = Ones(c, [](uint64_t i) { return i / 256 % 17 == 0; });
  for (const testing::Bytes& input : inputs) {
    ASSERT_EQ(EstimateNonzeros(c.op.dtype, input.data(), kEstimated), 0U);
  }
  const OpStats stats = SentBy(c, inputs);
  EXPECT_EQ(Count(stats, Reason::kNoGain), 2U);
  EXPECT_EQ(stats.sends_by_format[static_cast<size_t>(Format::kDense)], 2U);
  EXPECT_EQ(stats.input_nnz, Nonzeros(c, inputs));
  EXPECT_EQ(stats.wire_bytes, stats.dense_bytes);
}

}  // namespace
}  // namespace spccl::runtime
