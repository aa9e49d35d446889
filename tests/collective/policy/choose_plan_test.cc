#include "collective/policy/choose_plan.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kLarge = 16 << 20;  // 64 MiB of float32

Topology Nodes(uint32_t nodes, uint32_t ranks_a_node = 1) {
  return {.nodes = nodes, .ranks = nodes * ranks_a_node, .most_ranks = ranks_a_node};
}

Tuning At(double density, double link_rate = 0.118e9) {
  Tuning tuning;
  tuning.densities.fill(density);
  tuning.costs.link_rate = link_rate;
  return tuning;
}

double Seconds(Algorithm algorithm, const Tuning& tuning, const OpDesc& op, const Topology& nodes) {
  return Predict(algorithm, tuning, op, nodes).seconds;
}

constexpr OpDesc AllReduce(uint64_t count) {
  return {.kind = OpKind::kAllReduce, .count = count};
}

TEST(ChoosePlanTest, TwoNodesSparseExchangeInputsOnce) {
  // A ring's second half travels at twice the density: 1.5 times the bytes of one exchange.
  for (const double density : {0.01, 0.02, 0.1}) {
    const double ring =
        Predict(Algorithm::kTwoLevelRing, At(density), AllReduce(kLarge), Nodes(2)).wire_bytes;
    const double once =
        Predict(Algorithm::kRecursiveDoubling, At(density), AllReduce(kLarge), Nodes(2)).wire_bytes;
    EXPECT_LT(once, 0.85 * ring) << density;
  }
  for (const double density : {0.02, 0.1}) {
    const Choice choice = ChoosePlan(At(density), AllReduce(kLarge), Nodes(2));
    EXPECT_EQ(NameOf(choice.algorithm), "recursive-doubling") << density;
  }
}

TEST(ChoosePlanTest, WhereTheLinkDoesNotDecideTheWholeIsReadAndWrittenOnce) {
  const Choice halves = ChoosePlan(At(0.005), AllReduce(kLarge), Nodes(2));
  EXPECT_EQ(NameOf(halves.algorithm), "two-level-ring");
  // Of what fits into a few frames the rounds and the frames decide.
  const Choice small = ChoosePlan(At(0.01), AllReduce(1 << 16), Nodes(2));
  EXPECT_EQ(NameOf(small.algorithm), "recursive-doubling");
}

TEST(ChoosePlanTest, TheWorkOnFramesIsNotHiddenBehindTheMemory) {
  // Four daemons on two cores, rates as they were measured there. The whole takes 43 ms, as 512
  // frames, and its quarters 31, as 384: 26 and 14 ms for the memory alone, 25 and 30 for the link.
  Tuning tuning = At(0.01, 0.12e9);
  tuning.costs.cores = 0.5;
  tuning.costs.stream_rate = 1.26e10;
  tuning.costs.memory_rate = 2.9e10;
  tuning.costs.gap = {3.5e10, 1.7e9, 2.3e10, 1.2e9, 7e11, 1.3e9};
  EXPECT_EQ(NameOf(ChoosePlan(tuning, AllReduce(kLarge), Nodes(4)).algorithm), "split");
}

TEST(ChoosePlanTest, FourNodesVerySparseDoubleTheWhole) {
  // 1% and 2% of the whole beat three quarters at 1% and three quarters at 4%.
  const Tuning tuning = At(0.01);
  const OpDesc op = AllReduce(kLarge);
  EXPECT_LT(Seconds(Algorithm::kRecursiveDoubling, tuning, op, Nodes(4)),
            Seconds(Algorithm::kSplit, tuning, op, Nodes(4)));
}

TEST(ChoosePlanTest, EightNodesAtTenPercentSplit) {
  // 10, 19 and 34% of the whole are more than 7/8 at 10 and at 57%.
  const Tuning tuning = At(0.1);
  const OpDesc op = AllReduce(kLarge);
  EXPECT_LT(Seconds(Algorithm::kSplit, tuning, op, Nodes(8)),
            Seconds(Algorithm::kRecursiveDoubling, tuning, op, Nodes(8)));
}

TEST(ChoosePlanTest, LargeAndDenseMovesNoMoreThanItMust) {
  for (const uint32_t nodes : {4U, 8U, 16U}) {
    const Tuning tuning = At(1);
    const Choice choice = ChoosePlan(tuning, AllReduce(kLarge), Nodes(nodes));
    EXPECT_TRUE(choice.algorithm == Algorithm::kTwoLevelRing ||
                choice.algorithm == Algorithm::kHalvingDoubling)
        << NameOf(choice.algorithm);
    EXPECT_LT(choice.predictions[0].seconds, 0.8 * Seconds(Algorithm::kRecursiveDoubling, tuning,
                                                           AllReduce(kLarge), Nodes(nodes)));
    const double least = 2.0 * (nodes - 1) / nodes * kLarge * 4;
    EXPECT_NEAR(choice.predictions[0].wire_bytes / least, 1, 0.01);
  }
}

TEST(ChoosePlanTest, TinyTakesTheFewestRounds) {
  for (const uint32_t nodes : {2U, 4U, 16U, 64U}) {
    for (const uint64_t count : {1U, 64U}) {
      EXPECT_EQ(NameOf(ChoosePlan(At(1), AllReduce(count), Nodes(nodes)).algorithm),
                "recursive-doubling")
          << nodes << " " << count;
    }
  }
  const OpDesc broadcast{.kind = OpKind::kBroadcast, .count = 16};
  EXPECT_EQ(NameOf(ChoosePlan(At(1), broadcast, Nodes(16)).algorithm), "tree");
  const OpDesc gather{.kind = OpKind::kAllGather, .count = 16};
  EXPECT_EQ(NameOf(ChoosePlan(At(1), gather, Nodes(8)).algorithm), "direct");
}

TEST(ChoosePlanTest, ALargeBroadcastIsAChain) {
  const OpDesc op{.kind = OpKind::kBroadcast, .count = kLarge};
  EXPECT_EQ(NameOf(ChoosePlan(At(1), op, Nodes(8)).algorithm), "two-level-ring");
}

TEST(ChoosePlanTest, ScatterHasItsTree) {
  const OpDesc op{.kind = OpKind::kScatter, .root = 3, .count = kLarge};
  EXPECT_EQ(ChoosePlan(At(1), op, Nodes(5, 2)).algorithm, Algorithm::kTree);
}

TEST(ChoosePlanTest, WhatIsFixedRunsWhereItCan) {
  Tuning tuning = At(0.01);
  tuning.algorithm = Algorithm::kSplit;
  Choice choice = ChoosePlan(tuning, AllReduce(kLarge), Nodes(4));
  EXPECT_EQ(choice.chooser, Chooser::kFixed);
  EXPECT_EQ(choice.algorithm, Algorithm::kSplit);
  EXPECT_EQ(choice.predictions.size(), 5U);
  const OpDesc gather{.kind = OpKind::kAllGather, .count = 1024};
  choice = ChoosePlan(tuning, gather, Nodes(4));
  EXPECT_EQ(choice.chooser, Chooser::kCostModel);
  EXPECT_TRUE(HasPlan(choice.algorithm, OpKind::kAllGather));
  tuning.algorithm = Algorithm::kLocal;
  EXPECT_NE(ChoosePlan(tuning, gather, Nodes(4)).algorithm, Algorithm::kLocal);
  tuning.algorithm = Algorithm::kRing;
  EXPECT_EQ(ChoosePlan(tuning, gather, Nodes(4, 2)).algorithm, Algorithm::kRing);
  EXPECT_EQ(ChoosePlan(tuning, gather, Nodes(1, 2)).algorithm, Algorithm::kRing);
  tuning.algorithm = Algorithm::kTree;
  EXPECT_EQ(ChoosePlan(tuning, gather, Nodes(1, 2)).algorithm, Algorithm::kLocal);
}

TEST(ChoosePlanTest, AutoNeverTakesTheFlatRing) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    Tuning tuning = At(1.0 / static_cast<double>(1 + random() % 200), 1e8 * (1 + random() % 100));
    const OpDesc op{.kind = static_cast<OpKind>(random() % 5),
                    .dtype = static_cast<DType>(random() % kDTypeCount),
                    .count = random() % (1U << (random() % 26))};
    const Topology nodes = Nodes(2 + random() % 127, 1 + random() % 8);
    const Choice choice = ChoosePlan(tuning, op, nodes);
    ASSERT_TRUE(HasPlan(choice.algorithm, op.kind));
    ASSERT_NE(choice.algorithm, Algorithm::kRing);
    for (const Prediction& one : choice.predictions) {
      ASSERT_GT(one.seconds, 0);
      ASSERT_TRUE(one.seconds < 1e9) << NameOf(one.algorithm);
      ASSERT_GE(one.seconds, choice.predictions[0].seconds);
    }
  }
}

TEST(ChoosePlanTest, ReductionsThatCannotBeSparseArePredictedDense) {
  OpDesc op = AllReduce(kLarge);
  op.redop = RedOp::kMax;
  EXPECT_EQ(Seconds(Algorithm::kSplit, At(0.01), op, Nodes(4)),
            Seconds(Algorithm::kSplit, At(1), op, Nodes(4)));
  Tuning dense = At(0.01);
  dense.codec = Codec::kDense;
  EXPECT_EQ(Seconds(Algorithm::kSplit, dense, AllReduce(kLarge), Nodes(4)),
            Seconds(Algorithm::kSplit, At(1), AllReduce(kLarge), Nodes(4)));
}

TEST(ChoosePlanTest, SlowerLinksAndDenserInputsTakeLonger) {
  const OpDesc op = AllReduce(kLarge);
  for (const Algorithm algorithm : {Algorithm::kTwoLevelRing, Algorithm::kRecursiveDoubling,
                                    Algorithm::kHalvingDoubling, Algorithm::kSplit}) {
    EXPECT_GT(Seconds(algorithm, At(1, 0.1e9), op, Nodes(4)),
              5 * Seconds(algorithm, At(1, 1e9), op, Nodes(4)));
    EXPECT_GT(Seconds(algorithm, At(0.1), op, Nodes(4)),
              2 * Seconds(algorithm, At(0.01), op, Nodes(4)));
  }
}

TEST(ChoosePlanTest, TopologyOfAZigzagOrder) {
  const Topology topology = Topology::Of(std::vector<uint32_t>{4, 0, 4, 0, 0});
  EXPECT_EQ(topology.nodes, 2U);
  EXPECT_EQ(topology.ranks, 5U);
  EXPECT_EQ(topology.most_ranks, 3U);
}

}  // namespace
}  // namespace spccl::policy
