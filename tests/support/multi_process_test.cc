#include "tests/support/multi_process.h"

#include <signal.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace spccl::testing {
namespace {

TEST(MultiProcessTest, CollectsEveryRanksEnd) {
  MultiProcess processes(3, [](int rank, const MultiProcess::Report& report) {
    report("rank " + std::to_string(rank));
    return rank;
  });
  const std::vector<ProcessEnd> ends = processes.Wait(10'000);
  ASSERT_EQ(ends.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(ends[rank].exited);
    EXPECT_EQ(ends[rank].exit_code, rank);
    EXPECT_EQ(ends[rank].output, "rank " + std::to_string(rank));
  }
  EXPECT_FALSE(AllSucceeded(ends));
}

TEST(MultiProcessTest, TellsAKilledRankFromOneThatHangs) {
  MultiProcess processes(2, [](int, const MultiProcess::Report& report) {
    report("up");
    for (;;) ::pause();
    return 0;
  });
  ASSERT_TRUE(processes.AwaitReport(0, "up", 10'000));
  ASSERT_TRUE(processes.AwaitReport(1, "up", 10'000));
  processes.Kill(0, SIGKILL);
  const std::vector<ProcessEnd> ends = processes.Wait(200);
  EXPECT_EQ(ends[0].signal, SIGKILL);
  EXPECT_FALSE(ends[0].timed_out);
  EXPECT_TRUE(ends[1].timed_out);
}

TEST(MultiProcessTest, AwaitReportEndsWithTheProcess) {
  MultiProcess processes(1, [](int, const MultiProcess::Report&) { return 0; });
  EXPECT_FALSE(processes.AwaitReport(0, "never said", 10'000));
}

}  // namespace
}  // namespace spccl::testing
