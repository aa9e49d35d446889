#include "collective/runtime/host/prepared_plan.h"

#include <vector>

#include "collective/plan/make_plan.h"
#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

using plan::StepKind;
using policy::Algorithm;

std::shared_ptr<const PreparedPlan> Of(Algorithm algorithm, uint32_t nodes) {
  std::vector<uint32_t> node_of_rank(nodes);
  for (uint32_t i = 0; i < nodes; ++i) node_of_rank[i] = i;
  return Prepare(plan::MakePlan(algorithm, OpKind::kAllReduce, node_of_rank, 0));
}

// Whether the runs of `kind` of participant 0 are all of chunks that end reduced, or none is.
bool EndReduced(const PreparedPlan& plan, StepKind kind) {
  int yes = 0, no = 0;
  for (size_t i = 0; i < plan.plan.steps[0].size(); ++i) {
    if (plan.uses[0][i].run_steps == 0 || plan.plan.steps[0][i].kind != kind) continue;
    ++(plan.uses[0][i].ends_reduced ? yes : no);
  }
  EXPECT_NE(yes == 0, no == 0) << yes << " and " << no;
  return yes > 0;
}

TEST(PreparedPlanTest, RecursiveDoublingMaySumInTheOutputsFromTheFirstSendOn) {
  const auto plan = Of(Algorithm::kRecursiveDoubling, 4);
  EXPECT_TRUE(EndReduced(*plan, StepKind::kSend));
  EXPECT_TRUE(EndReduced(*plan, StepKind::kReduceKeep));
  EXPECT_TRUE(EndReduced(*plan, StepKind::kReduceStore));
}

TEST(PreparedPlanTest, WhatIsSentToItsOwnerComesBackFinal) {
  const auto plan = Of(Algorithm::kSplit, 4);
  EXPECT_FALSE(EndReduced(*plan, StepKind::kSend));
  EXPECT_TRUE(EndReduced(*plan, StepKind::kReduceKeep));
}

}  // namespace
}  // namespace spccl::runtime
