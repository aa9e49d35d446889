// What the flight recorder tells of a job over two nodes that hangs.
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/fault/tool.h"
#include "tests/support/trace_check.h"

namespace spccl::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FlightNodesTest : public ::testing::Test {
 protected:
  // A silent peer is given up after five heartbeats: there is time to ask.
  void SetUp() override {
    for (auto& daemon : daemons_) {
      daemon = StartServing({"--peers-listen=127.0.0.1:0", "--peers-heartbeat=5s"});
    }
  }
  std::vector<const SpawnedDaemon*> Two() const { return {daemons_[0].get(), daemons_[1].get()}; }

  std::unique_ptr<SpawnedDaemon> daemons_[2];
};

// One operation together; then rank 1 posts the next only once it is continued.
int StopBeforeTheSecond(RankContext& context) {
  std::vector<float> send(100'000, 1.0f), recv(send.size());
  if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
  if (context.rank == 1) ::raise(SIGSTOP);
  return AllReduce(context, send, &recv) == spcclSuccess ? 0 : 1;
}

TEST_F(FlightNodesTest, AStoppedRankOfTheOtherNodeIsNamed) {
  FaultJob job(Two(), StopBeforeTheSecond);
  const std::string name = "rank 1 (pid " + std::to_string(job.processes().pid(1));
  // From where it is waited for, and from where it is.
  for (const auto& daemon : daemons_) {
    const ToolEnd end = AskUntil(*daemon, "explain --wait 50ms", [&](const ToolEnd& end) {
      return end.output.find(name) != std::string::npos &&
             end.output.find("stopped") != std::string::npos &&
             end.output.find("still the same") != std::string::npos;
    });
    EXPECT_THAT(
        end.output,
        AllOf(HasSubstr("operation 1 (all_reduce count=100000 float32 sum) waits for " + name),
              HasSubstr("which has not posted it"), HasSubstr("stopped, by SIGSTOP"),
              HasSubstr("still the same")));
  }
  const ToolEnd here = RunTool(*daemons_[0], "explain --wait 50ms");
  EXPECT_THAT(here.output, AllOf(HasSubstr("look next at"), HasSubstr("spcclctl explain 1")));
  job.processes().Kill(1, SIGCONT);
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

int SumUntilError(RankContext& context) {
  std::vector<float> send(1'000'000, 1.0f), recv(send.size());
  for (int round = 0;; ++round) {
    const spcclResult_t result = AllReduce(context, send, &recv);
    if (round == 2) context.report("running;");
    if (result != spcclSuccess) return 0;
  }
}

TEST_F(FlightNodesTest, AFrozenDaemonIsNamedWithTheLinkToIt) {
  FaultJob job(Two(), SumUntilError);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "running;", kPatienceMs));
  }
  const ToolEnd trace = RunTool(*daemons_[0], "trace");
  EXPECT_EQ(FaultOfTrace(trace.json()), "");
  EXPECT_THAT(trace.output, AllOf(HasSubstr("\"encode\""), HasSubstr("\"send\""),
                                  HasSubstr("\"reduce\""), HasSubstr("\"link\":\"inter\"")));
  daemons_[1]->Signal(SIGSTOP);
  const ToolEnd end = AskUntil(*daemons_[0], "explain --wait 50ms", [](const ToolEnd& end) {
    return end.output.find("does not answer") != std::string::npos &&
           end.output.find("still the same") != std::string::npos;
  });
  EXPECT_THAT(end.output,
              AllOf(HasSubstr("rank 0"), HasSubstr("rank 1 on "), HasSubstr("the link from "),
                    HasSubstr("look next at "), HasSubstr("its daemon is at 127.0.0.1:")));
  daemons_[1]->Signal(SIGKILL);
  job.processes().Wait(kPatienceMs);
}

}  // namespace
}  // namespace spccl::testing
