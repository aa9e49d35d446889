// Every algorithm, for 1 to 128 participants of every shape, executed by the checker.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collective/plan/check.h"
#include "collective/plan/make_plan.h"
#include "gtest/gtest.h"
#include "tests/collective/plan/shapes.h"
#include "tests/support/thinning.h"

namespace spccl::plan {
namespace {

using policy::Algorithm;

constexpr uint32_t kMostParticipants = kThinning == 1 ? 128 : 33;  // the time grows as its cube

// Up to 20 all numbers, then what lies around powers of two, and some others.
std::vector<uint32_t> Participants() {
  std::vector<uint32_t> numbers;
  for (uint32_t p = 1; p <= 20; ++p) numbers.push_back(p);
  for (const uint32_t p : {31U, 32U, 33U, 63U, 64U, 65U, 100U, 128U}) {
    if (p <= kMostParticipants) numbers.push_back(p);
  }
  return numbers;
}

uint32_t FramesFor(const Plan& plan, Algorithm algorithm) {
  const bool doubles = algorithm == Algorithm::kHalvingDoubling;
  return doubles ? std::max(kFramesPerEdge, plan.chunks) : kFramesPerEdge;
}

void ExpectRight(Algorithm algorithm, OpKind op, const Shape& shape, uint32_t root) {
  const Plan plan = MakePlan(algorithm, op, shape.node_of_rank, root);
  const absl::Status status = Check(plan, FramesFor(plan, algorithm));
  EXPECT_TRUE(status.ok()) << NameOf(algorithm) << " " << NameOf(op) << " over "
                           << plan.participants() << ", " << shape.name << ", root " << root << ": "
                           << status;
}

class ShapesTest : public ::testing::TestWithParam<Algorithm> {};

// All-reduce stands for its halves here; these come for fewer numbers below.
TEST_P(ShapesTest, IsRightForEveryNumberOfNodesWithOneRank) {
  const bool reduces = HasPlan(GetParam(), OpKind::kAllReduce);
  for (uint32_t nodes = 1; nodes <= kMostParticipants; ++nodes) {
    for (const OpKind op : kAllOps) {
      const bool half = op == OpKind::kReduceScatter || op == OpKind::kAllGather;
      if (!HasPlan(GetParam(), op) || (reduces && half)) continue;
      ExpectRight(GetParam(), op, ShapesOf(nodes)[0], nodes / 3);
    }
    if (HasFailure()) return;
  }
}

TEST_P(ShapesTest, IsRightForNodesWithDifferentNumbersOfRanksInAnyOrder) {
  for (const uint32_t nodes : Participants()) {
    for (const OpKind op : kAllOps) {
      if (!HasPlan(GetParam(), op)) continue;
      for (const Shape& shape : ShapesOf(nodes)) ExpectRight(GetParam(), op, shape, nodes / 2);
    }
    if (HasFailure()) return;
  }
}

TEST_P(ShapesTest, IsRightForEveryRoot) {
  for (uint32_t nodes = 1; nodes <= 17; ++nodes) {
    for (const OpKind op : {OpKind::kBroadcast, OpKind::kScatter}) {
      if (!HasPlan(GetParam(), op)) continue;
      for (const Shape& shape : ShapesOf(nodes)) {
        for (uint32_t root = 0; root < shape.node_of_rank.size(); ++root) {
          ExpectRight(GetParam(), op, shape, root);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ShapesTest,
                         ::testing::Values(Algorithm::kRing, Algorithm::kTwoLevelRing,
                                           Algorithm::kRecursiveDoubling,
                                           Algorithm::kHalvingDoubling, Algorithm::kSplit,
                                           Algorithm::kDirect, Algorithm::kTree),
                         [](const auto& tested) {
                           std::string name(NameOf(tested.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace spccl::plan
