// One of several nodes dies, freezes or lies: every surviving rank is told who, and all can go on.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"

namespace spccl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kNodeLostWithinNs = 3'000'000'000;

class NodeDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto& daemon : daemons_) daemon = StartServing({"--peers-listen=127.0.0.1:0"});
  }
  std::vector<const SpawnedDaemon*> Place(const std::vector<int>& node_of_rank) const {
    std::vector<const SpawnedDaemon*> daemons;
    for (const int node : node_of_rank) daemons.push_back(daemons_[node].get());
    return daemons;
  }
  void ExpectThatAllStillWorks(const std::vector<int>& node_of_rank) {
    FaultJob job(Place(node_of_rank), KeepSumming);
    ASSERT_TRUE(job.processes().AwaitReport(0, "summing;", kPatienceMs));
    job.Stop();
    EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
  }

  std::unique_ptr<SpawnedDaemon> daemons_[3];
};

// Sums until it fails, and says how.
int SumUntilError(RankContext& context) {
  std::vector<float> send(1'000'000, 1.0f), recv(send.size());
  for (int round = 0;; ++round) {
    const spcclResult_t result = AllReduce(context, send, &recv);
    if (round == 2) context.report("running;");
    if (result == spcclSuccess) continue;
    ReportResult(context, result);
    return 0;
  }
}

void AwaitRunning(FaultJob& job, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "running;", kPatienceMs)) << "rank " << rank;
  }
}

TEST_F(NodeDeathTest, AKilledRankIsNamedOnEveryNode) {
  FaultJob job(Place({0, 1, 2, 1}), SumUntilError);
  AwaitRunning(job, 4);
  const int64_t killed_at_ns = MonotonicNanos();
  job.processes().Kill(3, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (int rank = 0; rank < 3; ++rank) {
    const Told told = ParseResult(ends[rank].output);
    EXPECT_EQ(told.result, spcclRemoteError) << ends[rank].output;
    EXPECT_THAT(told.text, HasSubstr("rank 3"));
    EXPECT_LT(told.at_ns - killed_at_ns, kToldWithinNs);
  }
  ExpectThatAllStillWorks({0, 1, 2, 1});
}

TEST_F(NodeDeathTest, AKilledDaemonIsNamedOnTheOthers) {
  FaultJob job(Place({0, 1, 2}), SumUntilError);
  AwaitRunning(job, 3);
  const int64_t killed_at_ns = MonotonicNanos();
  daemons_[1]->Signal(SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (const int rank : {0, 2}) {
    const Told told = ParseResult(ends[rank].output);
    EXPECT_EQ(told.result, spcclRemoteError) << ends[rank].output;
    // By whichever connection it was noticed: hosts may share a name.
    EXPECT_THAT(told.text, AllOf(HasSubstr("rank 1"), HasSubstr(" (127.0.0.1:")));
    EXPECT_LT(told.at_ns - killed_at_ns, kNodeLostWithinNs);
  }
  EXPECT_NE(ParseResult(ends[1].output).result, spcclSuccess);
  ExpectThatAllStillWorks({0, 2});
  daemons_[1] = StartServing({"--peers-listen=127.0.0.1:0"});
  ExpectThatAllStillWorks({0, 1, 2});
}

TEST_F(NodeDeathTest, AFrozenDaemonIsGivenUp) {
  FaultJob job(Place({0, 1, 2}), SumUntilError);
  AwaitRunning(job, 3);
  const int64_t frozen_at_ns = MonotonicNanos();
  daemons_[2]->Signal(SIGSTOP);
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "result", kPatienceMs));
  }
  daemons_[2]->Signal(SIGCONT);  // it learns that it was given up
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (const int rank : {0, 1}) {
    const Told told = ParseResult(ends[rank].output);
    EXPECT_THAT(told.text, HasSubstr("rank 2"));
    EXPECT_LT(told.at_ns - frozen_at_ns, kNodeLostWithinNs);
  }
  EXPECT_NE(ParseResult(ends[2].output).result, spcclSuccess);
  ExpectThatAllStillWorks({0, 1, 2});
}

}  // namespace
}  // namespace spccl::testing
