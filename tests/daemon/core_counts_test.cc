// What is counted of operations, to those who ask because a rank was told that one has ended.
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::kLargeCount;

TEST(CountsTest, AnOperationThatEndedIsCountedForWhoeverAsksThen) {
  DaemonEnv env;
  auto ranks = FormComm(env.socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  testing::RawRank& rank = ranks->at(0);
  const auto buffer = rank.client.Allocate(kLargeCount * sizeof(float));
  ASSERT_THAT(buffer, IsOk());
  for (uint64_t ops = 1; ops <= 200; ++ops) {
    ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, kLargeCount, 0, 0)));
    ASSERT_TRUE(rank.client.AwaitCompletion().has_value());
    const auto snapshot = env.core().GetSnapshot();
    ASSERT_THAT(snapshot, IsOk());
    ASSERT_EQ(snapshot->core.counters.ops, ops);
  }
}

}  // namespace
}  // namespace spccl::daemon
