#include "bench/soak/script.h"

#include <algorithm>
#include <set>

#include "bench/perf/pattern.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::bench {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::Not;

constexpr int kSteps = 2000;

TEST(SoakScriptTest, TheSameSeedDrawsTheSame) {
  SoakScript one(7, 5, 1 << 20), same(7, 5, 1 << 20), other(8, 5, 1 << 20);
  int differing = 0;
  for (int i = 0; i < kSteps; ++i) {
    const SoakStep a = one.Next(), b = same.Next(), c = other.Next();
    ASSERT_EQ(a.kind, b.kind);
    ASSERT_EQ(a.comm, b.comm);
    ASSERT_EQ(a.members, b.members);
    ASSERT_EQ(a.calls.size(), b.calls.size());
    for (size_t call = 0; call < a.calls.size(); ++call) {
      ASSERT_EQ(a.calls[call].seed, b.calls[call].seed);
      ASSERT_EQ(a.calls[call].problem.bytes, b.calls[call].problem.bytes);
    }
    differing += a.kind != c.kind || a.calls.size() != c.calls.size();
  }
  EXPECT_GT(differing, kSteps / 4);
}

class EveryStepTest : public ::testing::TestWithParam<uint32_t> {};

// Whatever is called is on a communicator that is there, whose ranks are distinct ranks of the job,
// and in bounds; and in the end everything has come up.
TEST_P(EveryStepTest, CanBeDone) {
  const uint32_t ranks = GetParam();
  constexpr uint64_t kMostBytes = 1 << 20;
  SoakScript script(ranks, ranks, kMostBytes);
  std::set<StepKind> kinds;
  std::set<DType> dtypes;
  std::set<Collective> collectives;
  bool empty = false;
  for (int i = 0; i < kSteps; ++i) {
    const SoakStep step = script.Next();
    kinds.insert(step.kind);
    EXPECT_THAT(script.members(0), Not(IsEmpty()));
    ASSERT_LT(step.comm, SoakScript::kMostComms);
    if (step.kind == StepKind::kJoin) {
      EXPECT_THAT(step.members, Not(IsEmpty()));
      EXPECT_THAT(step.members, Each(Lt(ranks)));
      EXPECT_EQ(std::set<uint32_t>(step.members.begin(), step.members.end()).size(),
                step.members.size());
      EXPECT_EQ(script.members(step.comm), step.members);
    }
    if (step.kind == StepKind::kLeave) EXPECT_NE(step.comm, 0u);
    for (const SoakCall& call : step.calls) {
      const Problem& problem = call.problem;
      ASSERT_EQ(problem.ranks, script.members(call.comm).size());
      EXPECT_LT(problem.op.root, problem.ranks);
      EXPECT_LE(problem.bytes, kMostBytes);
      EXPECT_LE(problem.recv_bytes(), kMostBytes);
      dtypes.insert(problem.op.dtype);
      collectives.insert(problem.op.kind);
      empty |= problem.op.count == 0;
    }
  }
  EXPECT_EQ(kinds.size(), 6u);
  EXPECT_EQ(dtypes.size(), static_cast<size_t>(kDTypeCount));
  EXPECT_EQ(collectives.size(), static_cast<size_t>(kCollectiveCount));
  EXPECT_TRUE(empty);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryStepTest, ::testing::Values(1, 2, 3, 7, kMaxRanks));

}  // namespace
}  // namespace spccl::bench
