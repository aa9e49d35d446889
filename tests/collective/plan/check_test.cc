// Plants every kind of fault in right plans: the checker must find each.
#include "collective/plan/check.h"

#include <algorithm>
#include <functional>
#include <string>

#include "collective/plan/ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::plan {
namespace {

using ::testing::HasSubstr;

constexpr OpKind kAllOps[] = {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce,
                              OpKind::kBroadcast};

// Applies `mutate` to every step of every participant in turn, each time to a fresh plan.
void ExpectEachFound(const std::function<bool(Plan*, uint32_t rank, size_t step)>& mutate) {
  int planted = 0;
  for (const OpKind op : kAllOps) {
    for (const uint32_t ranks : {2U, 3U, 5U}) {
      const Plan right = MakeRing(op, FlatMembers(ranks));
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (size_t step = 0; step < right.steps[rank].size(); ++step) {
          Plan plan = right;
          if (!mutate(&plan, rank, step)) continue;
          ++planted;
          EXPECT_FALSE(Check(plan).ok())
              << NameOf(op) << " of " << ranks << ", rank " << rank << " step " << step;
        }
      }
    }
  }
  EXPECT_GT(planted, 5);
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
    to = (to + 1) % plan->ranks();  // with two ranks: itself
    return true;
  });
}

TEST(CheckTest, AWrongSender) {
  ExpectEachFound([](Plan* plan, uint32_t rank, size_t step) {
    uint32_t& from = plan->steps[rank][step].from;
    if (from == kNobody) return false;
    from = (from + plan->ranks() - 1) % plan->ranks();
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
    } else if (kind == StepKind::kReduceStore) {
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
    // A send and a receive may well change places; two receives from one sender may not.
    if (!Receives(steps[step].kind) || !Receives(steps[step + 1].kind)) return false;
    std::swap(steps[step], steps[step + 1]);
    return true;
  });
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
