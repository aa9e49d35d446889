#include "collective/plan/ring.h"

#include "collective/plan/check.h"
#include "gtest/gtest.h"

namespace spccl::plan {
namespace {

TEST(RingTest, IsRightFor1To64RanksAndEveryRoot) {
  for (uint32_t ranks = 1; ranks <= 64; ++ranks) {
    for (const OpKind op : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce}) {
      const absl::Status status = Check(MakeRing(op, ranks));
      ASSERT_TRUE(status.ok()) << NameOf(op) << " " << ranks << " ranks: " << status;
    }
    for (uint32_t root = 0; root < ranks; ++root) {
      const absl::Status status = Check(MakeRing(OpKind::kBroadcast, ranks, root));
      ASSERT_TRUE(status.ok()) << "root " << root << " of " << ranks << ": " << status;
    }
  }
}

TEST(RingTest, AllReduceOfThreeByHand) {
  constexpr Phase kRs = Phase::kReduceScatter;
  constexpr Phase kAg = Phase::kAllGather;
  const Plan plan = MakeRing(OpKind::kAllReduce, 3);
  const std::vector<Step> expected = {
      {StepKind::kSend, kRs, 0, kNobody, 2, 1},        {StepKind::kReduceForward, kRs, 2, 0, 2, 1},
      {StepKind::kReduceStore, kRs, 1, 0, kNobody, 2}, {StepKind::kSend, kAg, 1, kNobody, 2, 3},
      {StepKind::kStoreForward, kAg, 0, 0, 2, 3},      {StepKind::kStore, kAg, 2, 0, kNobody, 3},
  };
  EXPECT_EQ(plan.steps[1], expected);
}

TEST(RingTest, SendsOnlyToTheNextAndAsOftenAsARingMust) {
  const Plan plan = MakeRing(OpKind::kAllReduce, 8);
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
