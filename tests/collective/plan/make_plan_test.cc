// Small plans by hand, and what distinguishes the algorithms.
#include "collective/plan/make_plan.h"

#include <bit>
#include <set>

#include "gtest/gtest.h"
#include "tests/collective/plan/shapes.h"

namespace spccl::plan {
namespace {

using policy::Algorithm;

constexpr Phase kRs = Phase::kReduceScatter;
constexpr Phase kAg = Phase::kAllGather;
constexpr Operand kInput = Operand::kInput;
constexpr Operand kPartial = Operand::kPartial;
constexpr Operand kOutput = Operand::kOutput;
constexpr uint32_t kNone = kNobody;

using Steps = std::vector<Step>;

Plan Make(Algorithm algorithm, OpKind op, std::vector<uint32_t> node_of_rank, uint32_t root = 0) {
  return MakePlan(algorithm, op, node_of_rank, root);
}

// Sends of frames that are encoded anew, and longest chain of rounds, are what algorithms differ
// in.
uint32_t Encodes(const Steps& steps) {
  uint32_t encodes = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool passes =
        steps[i].kind == StepKind::kForward || steps[i].kind == StepKind::kStoreForward;
    const bool shares = i > 0 && Sends(steps[i - 1].kind) && SharesFrame(steps[i - 1], steps[i]);
    // A send behind one that shares already shares, too.
    if (Sends(steps[i].kind) && !passes && !shares) ++encodes;
  }
  return encodes;
}

uint32_t CountSends(const Steps& steps) {
  uint32_t sends = 0;
  for (const Step& step : steps) sends += Sends(step.kind);
  return sends;
}

TEST(MakePlanTest, RecursiveDoublingOfTwoKeepsNothing) {
  const Plan plan = Make(Algorithm::kRecursiveDoubling, OpKind::kAllReduce, {0, 1, 1});
  EXPECT_EQ(plan.chunks, 1U);
  EXPECT_EQ(plan.steps[0], (Steps{{StepKind::kSend, kInput, kRs, 0, kNone, 1, 1},
                                  {StepKind::kReduceStore, kInput, kRs, 0, 1, kNone, 2}}));
  EXPECT_EQ(plan.steps[1], (Steps{{StepKind::kSend, kInput, kRs, 0, kNone, 0, 2},
                                  {StepKind::kReduceStore, kInput, kRs, 0, 0, kNone, 1}}));
}

TEST(MakePlanTest, RecursiveDoublingOfFiveFoldsOneIn) {
  const Plan plan = Make(Algorithm::kRecursiveDoubling, OpKind::kAllReduce, {0, 1, 2, 3, 4});
  EXPECT_EQ(plan.steps[0], (Steps{{StepKind::kReduceKeep, kInput, kRs, 0, 1, kNone, 1},
                                  {StepKind::kSend, kPartial, kRs, 0, kNone, 2, 2},
                                  {StepKind::kReduceKeep, kPartial, kRs, 0, 2, kNone, 1},
                                  {StepKind::kSend, kPartial, kRs, 0, kNone, 3, 3},
                                  {StepKind::kReduceStore, kPartial, kRs, 0, 3, kNone, 2},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 1, 5}}));
  EXPECT_EQ(plan.steps[1], (Steps{{StepKind::kSend, kInput, kRs, 0, kNone, 0, 1},
                                  {StepKind::kStore, kInput, kAg, 0, 0, kNone, 5}}));
  EXPECT_EQ(plan.steps[4], (Steps{{StepKind::kSend, kInput, kRs, 0, kNone, 3, 1},
                                  {StepKind::kReduceKeep, kInput, kRs, 0, 3, kNone, 1},
                                  {StepKind::kSend, kPartial, kRs, 0, kNone, 2, 2},
                                  {StepKind::kReduceStore, kPartial, kRs, 0, 2, kNone, 3}}));
}

TEST(MakePlanTest, SplitOfThree) {
  const Plan plan = Make(Algorithm::kSplit, OpKind::kAllReduce, {0, 1, 2});
  EXPECT_EQ(plan.steps[0], (Steps{{StepKind::kSend, kInput, kRs, 1, kNone, 1, 1},
                                  {StepKind::kSend, kInput, kRs, 2, kNone, 2, 1},
                                  {StepKind::kReduceKeep, kInput, kRs, 0, 2, kNone, 1},
                                  {StepKind::kReduceStore, kPartial, kRs, 0, 1, kNone, 1},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 1, 3},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 2, 3},
                                  {StepKind::kStore, kInput, kAg, 2, 2, kNone, 3},
                                  {StepKind::kStore, kInput, kAg, 1, 1, kNone, 3}}));
}

TEST(MakePlanTest, BinomialBroadcastOfFiveFromTwo) {
  const Plan plan = Make(Algorithm::kTree, OpKind::kBroadcast, {0, 1, 2, 3, 4}, 2);
  EXPECT_EQ(plan.steps[2], (Steps{{StepKind::kCopy, kInput, kAg, 0, kNone, kNone, 1},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 3, 1},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 4, 1},
                                  {StepKind::kSend, kOutput, kAg, 0, kNone, 1, 1}}));
  EXPECT_EQ(plan.steps[3], (Steps{{StepKind::kStoreForward, kInput, kAg, 0, 2, 0, 1}}));
  EXPECT_EQ(plan.steps[0], (Steps{{StepKind::kStore, kInput, kAg, 0, 3, kNone, 1}}));
}

TEST(MakePlanTest, BinomialScatterOfFourFromOne) {
  const Plan plan = Make(Algorithm::kTree, OpKind::kScatter, {0, 1, 2, 3}, 1);
  EXPECT_EQ(plan.steps[1], (Steps{{StepKind::kSend, kInput, kAg, 0, kNone, 3, 1},
                                  {StepKind::kSend, kInput, kAg, 3, kNone, 3, 1},
                                  {StepKind::kSend, kInput, kAg, 2, kNone, 2, 1},
                                  {StepKind::kCopy, kInput, kAg, 1, kNone, kNone, 1}}));
  EXPECT_EQ(plan.steps[3], (Steps{{StepKind::kForward, kInput, kAg, 0, 1, 0, 1},
                                  {StepKind::kStore, kInput, kAg, 3, 1, kNone, 1}}));
}

TEST(MakePlanTest, HalvingDoublingMovesWhatARingMoves) {
  for (const uint32_t nodes : {2U, 4U, 16U}) {
    const std::vector<uint32_t> ranks = ShapesOf(nodes)[0].node_of_rank;
    for (const OpKind op : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather}) {
      const Plan plan = Make(Algorithm::kHalvingDoubling, op, ranks);
      const Plan ring = Make(Algorithm::kTwoLevelRing, op, ranks);
      EXPECT_EQ(plan.chunks, nodes);
      for (uint32_t self = 0; self < nodes; ++self) {
        EXPECT_EQ(CountSends(plan.steps[self]), CountSends(ring.steps[self])) << NameOf(op);
      }
    }
  }
}

TEST(MakePlanTest, EachChunkOfAnAllGatherIsEncodedOnce) {
  const std::vector<uint32_t> ranks = ShapesOf(11)[1].node_of_rank;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTwoLevelRing,
                                    Algorithm::kHalvingDoubling, Algorithm::kDirect}) {
    const Plan plan = Make(algorithm, OpKind::kAllGather, ranks);
    uint32_t encodes = 0;
    for (const Steps& steps : plan.steps) encodes += Encodes(steps);
    EXPECT_EQ(encodes, ranks.size()) << NameOf(algorithm);
  }
}

TEST(MakePlanTest, ATreeEncodesAtTheRootOnlyAndIsShallow) {
  const Plan plan = Make(Algorithm::kTree, OpKind::kBroadcast, ShapesOf(21)[0].node_of_rank, 4);
  for (uint32_t self = 0; self < 21; ++self) {
    EXPECT_EQ(Encodes(plan.steps[self]), self == 4 ? 1U : 0U);
    EXPECT_LE(CountSends(plan.steps[self]), 5U);
  }
}

TEST(MakePlanTest, AFlatRingEntersEachNodeOnce) {
  const std::vector<uint32_t> zigzag = {0, 1, 2, 0, 1, 2, 1};
  const Plan plan = Make(Algorithm::kRing, OpKind::kAllReduce, zigzag);
  uint32_t crossings = 0;
  for (uint32_t self = 0; self < plan.participants(); ++self) {
    const uint32_t next = plan.steps[self][0].to;
    crossings += zigzag[plan.members[self][0]] != zigzag[plan.members[next][0]];
  }
  EXPECT_EQ(crossings, 3U);
}

TEST(MakePlanTest, DigestsDiffer) {
  std::set<uint64_t> digests;
  size_t plans = 0;
  for (int code = 3; code < policy::kAlgorithmCount; ++code) {  // those over nodes
    const Algorithm algorithm = static_cast<Algorithm>(code);
    for (const OpKind op : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kBroadcast}) {
      if (!HasPlan(algorithm, op)) continue;
      for (uint32_t nodes = 4; nodes < 8; ++nodes) {
        for (const Shape& shape : ShapesOf(nodes)) {
          const Plan plan = MakePlan(algorithm, op, shape.node_of_rank, HasRoot(op) ? 1 : 0);
          EXPECT_EQ(Digest(plan), Digest(MakePlan(algorithm, op, shape.node_of_rank, plan.root)));
          ++plans;
          digests.insert(Digest(plan));
        }
      }
    }
  }
  EXPECT_EQ(digests.size(), plans);
}

}  // namespace
}  // namespace spccl::plan
