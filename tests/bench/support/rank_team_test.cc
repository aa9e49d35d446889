#include "bench/support/rank_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>
#include <vector>

namespace spccl::bench {
namespace {

using ::testing::HasSubstr;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

TEST(RunTeam, FoldsOverRanks) {
  const absl::Status status = RunTeam(3, [](RankTeam& team) {
    std::vector<double> largest(5000), sum(5000);  // more than one row
    for (size_t i = 0; i < largest.size(); ++i) {
      largest[i] = sum[i] = static_cast<double>(i) * (team.rank() + 1);
    }
    if (!team.MaxOverRanks(largest).ok()) return absl::InternalError("max");
    if (!team.SumOverRanks(sum).ok()) return absl::InternalError("sum");
    for (size_t i = 0; i < largest.size(); ++i) {
      if (largest[i] != 3.0 * i || sum[i] != 6.0 * i) return absl::InternalError("wrong");
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RunTeam, HandsOutRankZerosValue) {
  EXPECT_TRUE(RunTeam(3, [](RankTeam& team) {
                int value = 40 + team.rank();
                const absl::Status status = team.FromRankZero(&value, sizeof(value));
                return status.ok() && value == 40 ? absl::OkStatus() : absl::InternalError("wrong");
              }).ok());
}

// Rank 0 waits, fails only because of rank 1, and is looked at first.
TEST(RunTeam, NamesTheCauseAndNotTheBarrier) {
  const absl::Status status = RunTeam(2, [](RankTeam& team) {
    return team.rank() == 1 ? absl::InternalError("the cause") : team.Barrier();
  });
  EXPECT_THAT(Text(status), HasSubstr("rank 1: the cause"));
}

TEST(RunTeam, BarrierHoldsAllBack) {
  auto arena = SharedArena::Create(sizeof(std::atomic<int>));
  ASSERT_TRUE(arena.ok());
  auto* const arrived = new (arena->data()) std::atomic<int>(0);
  EXPECT_TRUE(RunTeam(4, [&](RankTeam& team) {
                for (int round = 1; round <= 100; ++round) {
                  ++*arrived;
                  if (!team.Barrier().ok()) return absl::InternalError("barrier");
                  if (arrived->load() < 4 * round) return absl::InternalError("left early");
                  if (!team.Barrier().ok()) return absl::InternalError("barrier");
                }
                return absl::OkStatus();
              }).ok());
}

TEST(RunTeam, NamesTheRankThatFailed) {
  const absl::Status status = RunTeam(3, [](RankTeam& team) {
    if (team.rank() == 1) return absl::InternalError("out of luck");
    return team.Barrier();  // must not hang
  });
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), HasSubstr("rank"));
}

TEST(RunTeam, EndsTheOthersWhenARankIsKilled) {
  const absl::Status status = RunTeam(3, [](RankTeam& team) {
    if (team.rank() == 2) kill(getpid(), SIGKILL);
    while (team.rank() == 0) pause();  // one that never comes to a barrier
    return team.Barrier();
  });
  EXPECT_FALSE(status.ok());
}

TEST(RunTeam, EndsOnATerminalsInterrupt) {
  const pid_t parent = getpid();
  const absl::Status status = RunTeam(2, [parent](RankTeam& team) {
    if (team.rank() == 0) kill(parent, SIGINT);
    while (true) pause();
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace spccl::bench
