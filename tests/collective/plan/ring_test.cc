#include "collective/plan/ring.h"

#include "gtest/gtest.h"

namespace spccl::plan {
namespace {

TEST(RingTest, AllReduceOfThreeByHand) {
  constexpr Phase kRs = Phase::kReduceScatter;
  constexpr Phase kAg = Phase::kAllGather;
  const Plan plan = MakeRing(OpKind::kAllReduce, FlatMembers(3));
  constexpr Operand kInput = Operand::kInput;
  const std::vector<Step> expected = {
      {StepKind::kSend, kInput, kRs, 0, kNobody, 2, 1},
      {StepKind::kReduceForward, kInput, kRs, 2, 0, 2, 1},
      {StepKind::kReduceStore, kInput, kRs, 1, 0, kNobody, 2},
      {StepKind::kSend, Operand::kOutput, kAg, 1, kNobody, 2, 3},
      {StepKind::kStoreForward, kInput, kAg, 0, 0, 2, 3},
      {StepKind::kStore, kInput, kAg, 2, 0, kNobody, 3},
  };
  EXPECT_EQ(plan.steps[1], expected);
}

TEST(RingTest, SendsOnlyToTheNextAndAsOftenAsARingMust) {
  const Plan plan = MakeRing(OpKind::kAllReduce, FlatMembers(8));
  for (uint32_t rank = 0; rank < 8; ++rank) {
    int sends = 0;
    for (const Step& step : plan.steps[rank]) {
      if (!Sends(step.kind)) continue;
      ++sends;
      EXPECT_EQ(step.to, (rank + 1) % 8);
    }
    EXPECT_EQ(sends, 14);
  }
}

}  // namespace
}  // namespace spccl::plan
