#include "daemon/send_report.h"

#include <gtest/gtest.h>

namespace spccl::daemon {
namespace {

using policy::Reason;

runtime::SendStepStats Step(Phase phase, Reason reason, uint64_t count, double sparsity,
                            double threshold) {
  runtime::SendStepStats step;
  step.phase = phase;
  step.link = policy::Link::kInter;
  step.decisions[static_cast<size_t>(reason)] = count;
  step.sparsity_sum = sparsity * 2;
  step.sparsity_count = sparsity > 0 ? 2 : 0;
  step.threshold = threshold;
  return step;
}

SendsInfo Example() {
  return {.operation = "all_reduce",
          .algorithm = "two-level-ring",
          .steps = {Step(Phase::kReduceScatter, Reason::kFirst, 4, 0.99, 0),
                    Step(Phase::kReduceScatter, Reason::kKnownAbove, 4, 0.98, 0.5),
                    Step(Phase::kReduceScatter, Reason::kKnownAbove, 4, 0.97, 0.5),
                    Step(Phase::kAllGather, Reason::kForwarded, 4, 0, 0)}};
}

TEST(SendReportTest, TellsEachSendAndJoinsThoseThatAreAlike) {
  EXPECT_EQ(Describe(Example()),
            "all_reduce by two-level-ring: send 0 (reduce_scatter, inter) first, sparsity 0.99; "
            "sends 1-2 (reduce_scatter, inter) known-above, sparsity 0.98, threshold 0.5; "
            "send 3 (all_gather, inter) forwarded");
}

TEST(SendReportTest, TheOutlineChangesWithDecisionsAndNotWithNumbers) {
  SendsInfo other = Example();
  other.steps[1].sparsity_sum = 1.2;
  other.steps[2].threshold = 0.4;
  EXPECT_EQ(Outline(other), Outline(Example()));
  other.steps[2].decisions[static_cast<size_t>(Reason::kKnownBelow)] = 5;  // more than above
  EXPECT_EQ(MainReason(other.steps[2]), Reason::kKnownBelow);
  EXPECT_NE(Outline(other), Outline(Example()));
  other = Example();
  other.algorithm = "split";
  EXPECT_NE(Outline(other), Outline(Example()));
}

TEST(SendReportTest, AStepThatSentNothingIsPassedOver) {
  SendsInfo sends = Example();
  sends.steps[0].decisions = {};
  sends.steps[0].sparsity_count = 0;
  sends.steps.push_back({});
  EXPECT_EQ(Outline(sends),
            "all_reduce by two-level-ring: sends 1-2 (reduce_scatter, inter) known-above; "
            "send 3 (all_gather, inter) forwarded");
}

TEST(SendReportTest, TellsNothingWhereNoSendWasNoted) {
  for (const std::vector<runtime::SendStepStats>& steps :
       {std::vector<runtime::SendStepStats>(), std::vector<runtime::SendStepStats>(2)}) {
    const SendsInfo sends = {.operation = "all_reduce", .algorithm = "gpu", .steps = steps};
    EXPECT_EQ(Describe(sends), "");
    EXPECT_EQ(Outline(sends), "");
  }
}

}  // namespace
}  // namespace spccl::daemon
