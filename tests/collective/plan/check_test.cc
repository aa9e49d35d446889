// Plants every kind of fault in right plans: the checker must find each.
#include "collective/plan/check.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "collective/plan/make_plan.h"
#include "collective/plan/ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/plan/shapes.h"

namespace spccl::plan {
namespace {

using ::testing::HasSubstr;

using policy::Algorithm;

// Every algorithm over a few nodes, one rank each, and three and one ranks, and in zigzag.
std::vector<Plan> RightPlans() {
  std::vector<Plan> plans;
  for (int code = 0; code < policy::kAlgorithmCount; ++code) {
    const Algorithm algorithm = static_cast<Algorithm>(code);
    if (algorithm == Algorithm::kLocal) continue;
    for (const OpKind op : kAllOps) {
      if (!HasPlan(algorithm, op)) continue;
      for (const uint32_t nodes : {2U, 3U, 5U, 7U}) {
        for (const Shape& shape : ShapesOf(nodes)) {
          plans.push_back(MakePlan(algorithm, op, shape.node_of_rank, nodes / 2));
        }
      }
    }
  }
  return plans;
}

// Applies `mutate` to every step of every participant in turn, each time to a fresh plan.
void ExpectEachFound(const std::function<bool(Plan*, uint32_t self, size_t step)>& mutate) {
  int planted = 0;
  for (const Plan& right : RightPlans()) {
    ASSERT_TRUE(Check(right).ok());
    for (uint32_t self = 0; self < right.participants(); ++self) {
      for (size_t step = 0; step < right.steps[self].size(); ++step) {
        Plan plan = right;
        if (!mutate(&plan, self, step)) continue;
        ++planted;
        EXPECT_FALSE(Check(plan).ok())
            << NameOf(right.op) << " of " << right.participants() << " "
            << NameOf(right.steps[self][step].kind) << ", participant " << self << " step " << step;
      }
    }
  }
  EXPECT_GT(planted, 50);
}

TEST(CheckTest, ADroppedStep) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    plan->steps[rank].erase(plan->steps[rank].begin() + static_cast<ptrdiff_t>(step));
    return true;
  });
}

TEST(CheckTest, ADuplicatedStep) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    std::vector<Step>& steps = plan->steps[rank];
    const Step copy = steps[step];
    steps.insert(steps.begin() + static_cast<ptrdiff_t>(step), copy);
    return true;
  });
}

TEST(CheckTest, AWrongChunk) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    plan->steps[rank][step].chunk = (plan->steps[rank][step].chunk + 1) % (plan->chunks + 1);
    return true;
  });
}

TEST(CheckTest, AWrongReceiver) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    uint32_t& to = plan->steps[rank][step].to;
    if (to == kNobody) return false;
    to = (to + 1) % plan->participants();  // with two: itself
    return true;
  });
}

TEST(CheckTest, AWrongSender) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    uint32_t& from = plan->steps[rank][step].from;
    if (from == kNobody) return false;
    from = (from + plan->participants() - 1) % plan->participants();
    return true;
  });
}

TEST(CheckTest, AWrongNumberOfContributions) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    ++plan->steps[rank][step].contributions;
    return true;
  });
}

TEST(CheckTest, ADroppedReduction) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    StepKind& kind = plan->steps[rank][step].kind;
    if (kind == StepKind::kReduceForward) {
      kind = StepKind::kStoreForward;
    } else if (Combines(kind)) {
      kind = StepKind::kStore;
    } else {
      return false;
    }
    return true;
  });
}

TEST(CheckTest, AReductionTooMany) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    StepKind& kind = plan->steps[rank][step].kind;
    if (kind != StepKind::kStore) return false;
    kind = StepKind::kReduceStore;
    return true;
  });
}

TEST(CheckTest, TwoReceivesSwapped) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    std::vector<Step>& steps = plan->steps[rank];
    if (step + 1 == steps.size()) return false;
    // A send and a receive may well change places; two receives from one sender may not, unless
    // both are of the same.
    if (!Receives(steps[step].kind) || steps[step].from != steps[step + 1].from) return false;
    std::swap(steps[step], steps[step + 1]);
    return true;
  });
}

TEST(CheckTest, AWrongOperand) {
  for (int other = 1; other < kOperandCount; ++other) {
    ExpectEachFound([other](Plan* plan, uint32_t self, size_t step) {
      Step& one = plan->steps[self][step];
      const Operand right = one.operand;
      one.operand = static_cast<Operand>((static_cast<int>(right) + other) % kOperandCount);
      // Where nothing is reduced, a root that has copied may send either; but not before.
      return Reduces(plan->op) || one.kind != StepKind::kSend || one.operand == Operand::kPartial;
    });
  }
}

TEST(CheckTest, AWrongPhase) {
  ExpectEachFound([](Plan* plan, uint32_t self, size_t step) {
    Step& one = plan->steps[self][step];
    if (one.kind == StepKind::kCopy && Reduces(plan->op)) return false;
    const bool gathers = one.phase == Phase::kAllGather;
    one.phase = gathers ? Phase::kReduceScatter : Phase::kAllGather;
    return true;
  });
}

TEST(CheckTest, AForwardThatShouldStore) {
  ExpectEachFound([](Plan* plan, uint32_t self, size_t step) {
    StepKind& kind = plan->steps[self][step].kind;
    if (kind != StepKind::kStoreForward) return false;
    kind = StepKind::kForward;
    return true;
  });
}

TEST(CheckTest, AResultThatIsNotStored) {
  ExpectEachFound([](Plan* plan, uint32_t self, size_t step) {
    StepKind& kind = plan->steps[self][step].kind;
    if (kind != StepKind::kReduceStore) return false;
    kind = StepKind::kReduceKeep;
    return true;
  });
}

TEST(CheckTest, APartialResultThatIsStored) {
  ExpectEachFound([](Plan* plan, uint32_t self, size_t step) {
    StepKind& kind = plan->steps[self][step].kind;
    if (kind != StepKind::kReduceKeep) return false;
    kind = StepKind::kReduceStore;
    return true;
  });
}

TEST(CheckTest, RanksThatAreNobodysOrTwoParticipants) {
  for (const Plan& right : RightPlans()) {
    Plan plan = right;
    plan.members[0].push_back(right.members[1][0]);
    EXPECT_FALSE(Check(plan).ok());
    plan = right;
    plan.members[0][0] = right.ranks();
    EXPECT_FALSE(Check(plan).ok());
  }
}

TEST(CheckTest, MembersOfAnotherParticipant) {
  for (const Plan& right : RightPlans()) {
    // Where chunks are ranks', it matters whose they are.
    if (right.op == OpKind::kAllReduce || right.op == OpKind::kBroadcast) continue;
    Plan plan = right;
    plan.members[0].swap(plan.members[1]);
    EXPECT_FALSE(Check(plan).ok()) << NameOf(right.op) << " of " << right.participants();
  }
}

TEST(CheckTest, AContributionThatComesTwice) {
  // The same two exchange in both rounds.
  Plan plan = MakePlan(Algorithm::kRecursiveDoubling, OpKind::kAllReduce,
                       std::vector<uint32_t>{0, 1, 2, 3}, 0);
  for (std::vector<Step>& steps : plan.steps) {
    steps[2].to = steps[0].to;
    steps[3].from = steps[1].from;
  }
  EXPECT_THAT(std::string(Check(plan).message()), HasSubstr("combines a contribution with itself"));
}

TEST(CheckTest, AnOrderThatDeadlocks) {
  // Everybody receives before anybody sends.
  for (const OpKind op : {OpKind::kReduceScatter, OpKind::kAllReduce}) {
    Plan plan = MakeRing(op, FlatMembers(4));
    for (std::vector<Step>& steps : plan.steps)
      std::rotate(steps.begin(), steps.begin() + 1, steps.end());
    const absl::Status status = Check(plan);
    EXPECT_THAT(std::string(status.message()), HasSubstr("waits for ever"));
  }
}

TEST(CheckTest, ARingNeedsTwoFramesAnEdge) {
  EXPECT_TRUE(Check(MakeRing(OpKind::kAllReduce, FlatMembers(4)), 2).ok());
  EXPECT_THAT(std::string(Check(MakeRing(OpKind::kAllReduce, FlatMembers(4)), 1).message()),
              HasSubstr("waits for ever"));
}

TEST(CheckTest, AnInputReadAfterItsOutputWasWritten) {
  // One rank that copies twice: in place, the second copy would read a result.
  Plan plan = MakeRing(OpKind::kAllReduce, FlatMembers(1));
  plan.steps[0].push_back(plan.steps[0][0]);
  EXPECT_THAT(std::string(Check(plan).message()), HasSubstr("overwritten"));
}

TEST(CheckTest, SaysWhereAndWhat) {
  Plan plan = MakeRing(OpKind::kAllReduce, FlatMembers(3));
  plan.steps[1][0].chunk = 1;
  const std::string message(Check(plan).message());
  EXPECT_THAT(message, HasSubstr("participant 2 step 1 (reduce-forward chunk 0)"));
  EXPECT_THAT(message, HasSubstr("expects chunk 0 of reduce_scatter, participant 1 sent chunk 1"));
}

}  // namespace
}  // namespace spccl::plan
