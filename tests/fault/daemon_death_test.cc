// The daemon is killed, or a rank is killed or frozen: whoever waits is told, in time and by name.
// A daemon that is frozen they wait for, until it is killed (docs/adr/0004).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
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

// Of the daemon's death, after whatever `before` does to it.
void ExpectAllToldWithinASecond(const std::function<void(SpawnedDaemon&)>& before) {
  const auto daemon = StartServing();
  // Ranks 0 to 2 wait: in an operation, in a stream's synchronize, in a communicator's making.
  FaultJob job(*daemon, 4, [](RankContext& context) {
    std::vector<float> send(1000, 1.0f), recv(1000);
    spcclStream_t stream = nullptr;
    spcclUniqueId id;
    if (spcclStreamCreate(&stream) != spcclSuccess) return 1;
    if (spcclGetUniqueId(&id) != spcclSuccess) return 1;
    context.report("waiting;");
    switch (context.rank) {
      case 0:
        ReportResult(context, AllReduce(context, send, &recv));
        break;
      case 1:
        spcclAllReduce(send.data(), recv.data(), send.size(), spcclFloat32, spcclSum, context.comm,
                       stream);
        ReportResult(context, spcclStreamSynchronize(stream));
        break;
      case 2: {
        spcclComm_t other;
        ReportResult(context, spcclCommInitRank(&other, 2, id, 0));
        break;
      }
      default:
        for (;;) ::pause();  // never calls: so the others wait
    }
    return 0;
  });
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "waiting;", kPatienceMs));
  }
  before(*daemon);
  const int64_t killed_at_ns = MonotonicNanos();
  daemon->Signal(SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "result ", kPatienceMs)) << "rank " << rank;
  }
  job.processes().Kill(3, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (int rank = 0; rank < 3; ++rank) {
    const Told told = ParseResult(ends[rank].output);
    EXPECT_EQ(told.result, spcclSystemError) << ends[rank].output;
    EXPECT_LT(told.at_ns - killed_at_ns, kToldWithinNs) << "rank " << rank;
    EXPECT_TRUE(ends[rank].exited);
  }
}

TEST(DaemonDeathTest, EveryWaitingClientGetsAnErrorWithinASecond) {
  ExpectAllToldWithinASecond([](SpawnedDaemon&) {});
}

// As a service manager does, which nobody feeds any more.
TEST(DaemonDeathTest, SoDoesWhoeverWaitsForAFrozenOneOnceItIsKilled) {
  ExpectAllToldWithinASecond([](SpawnedDaemon& daemon) {
    daemon.Signal(SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(daemon.pid(), &status, WUNTRACED), daemon.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  });
}

TEST(DaemonDeathTest, AStoppedDaemonSaysGoodbyeToThoseWhoWait) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 2, [](RankContext& context) {
    std::vector<float> send(10, 1.0f), recv(10);
    context.report("waiting;");
    if (context.rank == 1) {
      for (;;) ::pause();
    }
    ReportResult(context, AllReduce(context, send, &recv));
    return 0;
  });
  ASSERT_TRUE(job.processes().AwaitReport(0, "waiting;", kPatienceMs));
  ASSERT_TRUE(job.processes().AwaitReport(1, "waiting;", kPatienceMs));
  daemon->Signal(SIGTERM);
  ASSERT_TRUE(job.processes().AwaitReport(0, "result ", kPatienceMs));
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  job.processes().Kill(1, SIGKILL);
  EXPECT_NE(ParseResult(job.processes().Wait(kPatienceMs)[0].output).result, spcclSuccess);
}

TEST(FrozenRankTest, TheOthersGetADeadlineANameAndAPhase) {
  constexpr int kFrozen = 1;
  const auto daemon = StartServing({"--op-timeout", "300ms"});
  FaultJob job(*daemon, 3, [](RankContext& context) {
    std::vector<float> send(1000, 1.0f), recv(1000);
    context.report("ready;");
    if (context.rank == kFrozen) ::raise(SIGSTOP);
    ReportResult(context, AllReduce(context, send, &recv));
    return 0;
  });
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "result ", kPatienceMs));
  }
  job.processes().Kill(kFrozen, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (const int rank : {0, 2}) {
    const Told told = ParseResult(ends[rank].output);
    EXPECT_EQ(told.result, spcclRemoteError) << ends[rank].output;
    EXPECT_THAT(told.text, AllOf(HasSubstr("waiting for rank 1"), HasSubstr("300 ms")));
  }
}

}  // namespace
}  // namespace spccl::testing
