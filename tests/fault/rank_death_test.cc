// A rank is killed: the others are told who, within a second; nobody else notices; nothing is left.
#include <signal.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/support/thinning.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

class RankDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = StartServing();
    baseline_ = HoldingsOf(daemon_->pid());
  }

  // Every rank but `killed` has reported an error that names it, within a second of the kill.
  static void ExpectTold(const std::vector<ProcessEnd>& ends, int killed, int64_t killed_at_ns) {
    for (int rank = 0; rank < static_cast<int>(ends.size()); ++rank) {
      if (rank == killed) {
        EXPECT_EQ(ends[rank].signal, SIGKILL);
        continue;
      }
      EXPECT_TRUE(ends[rank].exited && ends[rank].exit_code == 0) << ends[rank].output;
      const Told told = ParseResult(ends[rank].output);
      EXPECT_EQ(told.result, spcclRemoteError) << ends[rank].output;
      EXPECT_THAT(told.text, HasSubstr("rank " + std::to_string(killed)));
      EXPECT_LT(told.at_ns - killed_at_ns, kToldWithinNs);
    }
  }

  std::unique_ptr<SpawnedDaemon> daemon_;
  Holdings baseline_;
};

TEST_F(RankDeathTest, BeforeItsPartOfAnOperation) {
  constexpr int kKilled = 2;
  FaultJob job(*daemon_, 3, [](RankContext& context) {
    std::vector<float> send(1000, 1.0f), recv(1000);
    if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
    context.report("ready;");
    if (context.rank == kKilled) {
      for (;;) ::pause();
    }
    ReportResult(context, AllReduce(context, send, &recv));
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "ready;", kPatienceMs));
  }
  const int64_t killed_at_ns = MonotonicNanos();
  job.processes().Kill(kKilled, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  ExpectTold(ends, kKilled, killed_at_ns);
  // A clean goodbye it was not.
  EXPECT_THAT(ParseResult(ends[0].output).text, HasSubstr("has ended"));
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
}

// Large operations one after the other, so that the kill falls into the middle of one.
constexpr size_t kLargeCount = size_t{8} << 20;

int SumUntilError(RankContext& context, void* memory) {
  for (int round = 0;; ++round) {
    const spcclResult_t result =
        spcclAllReduce(memory, memory, kLargeCount, spcclFloat32, spcclSum, context.comm, nullptr);
    if (round == 1) context.report("running;");
    if (result == spcclSuccess) continue;
    ReportResult(context, result);
    return 0;
  }
}

int SumSharedUntilError(RankContext& context) {
  void* memory = nullptr;
  if (spcclMemAlloc(&memory, kLargeCount * sizeof(float)) != spcclSuccess) return 1;
  return SumUntilError(context, memory);
}

int SumOrdinaryUntilError(RankContext& context) {
  std::vector<float> memory(kLargeCount);
  return SumUntilError(context, memory.data());
}

TEST_F(RankDeathTest, InMidOperationWhileAnotherJobGoesOn) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  FaultJob unharmed(*daemon_, 2, KeepSumming);
  ASSERT_TRUE(unharmed.processes().AwaitReport(0, "summing;", kPatienceMs));
  ASSERT_TRUE(unharmed.processes().AwaitReport(1, "summing;", kPatienceMs));
  const Holdings with_other = HoldingsOf(daemon_->pid());
  for (int round = 0; round < 4; ++round) {
    FaultJob job(*daemon_, 3, round % 2 == 0 ? SumSharedUntilError : SumOrdinaryUntilError);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(job.processes().AwaitReport(rank, "running;", kPatienceMs));
    }
    const int killed = static_cast<int>(random() % 3);
    const int64_t killed_at_ns = MonotonicNanos();
    job.processes().Kill(killed, SIGKILL);
    ExpectTold(job.processes().Wait(kPatienceMs), killed, killed_at_ns);
    EXPECT_EQ(AwaitHoldings(daemon_->pid(), with_other), with_other);
  }
  unharmed.Stop();
  EXPECT_TRUE(AllSucceeded(unharmed.processes().Wait(kPatienceMs)));
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
}

TEST_F(RankDeathTest, WhileTheOthersWaitForItToJoin) {
  // Rank 1 of 2 never comes; rank 0 dies while it waits, and a new communicator works at once.
  {
    MultiProcess waiting(1, [this](int, const MultiProcess::Report& report) {
      ::setenv("SPCCL_RUNTIME_DIR", daemon_->runtime_dir().c_str(), 1);
      spcclUniqueId id;
      if (spcclGetUniqueId(&id) != spcclSuccess) return 1;
      report("joining;");
      spcclComm_t comm;
      return spcclCommInitRank(&comm, 2, id, 0) == spcclSuccess ? 0 : 1;
    });
    ASSERT_TRUE(waiting.AwaitReport(0, "joining;", kPatienceMs));
    waiting.Kill(0, SIGKILL);
    EXPECT_EQ(waiting.Wait(kPatienceMs)[0].signal, SIGKILL);
  }
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
  FaultJob job(*daemon_, 2, KeepSumming);
  job.Stop();
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

// A thousand of them; fewer where each takes long.
TEST_F(RankDeathTest, ManyClientsThatOpenAndDieLeakNothing) {
  constexpr int kRounds = Thinned(50), kAtOnce = 20;
  for (int round = 0; round < kRounds; ++round) {
    MultiProcess clients(kAtOnce, [this](int rank, const MultiProcess::Report&) {
      ::setenv("SPCCL_RUNTIME_DIR", daemon_->runtime_dir().c_str(), 1);
      spcclUniqueId id;
      spcclComm_t comm;
      void* memory = nullptr;
      float one = 1;
      if (spcclGetUniqueId(&id) != spcclSuccess) return 1;
      if (spcclCommInitRank(&comm, 1, id, 0) != spcclSuccess) return 2;
      if (spcclMemAlloc(&memory, 1 << 16) != spcclSuccess) return 3;
      if (spcclAllReduce(&one, memory, 1, spcclFloat32, spcclSum, comm, nullptr) != spcclSuccess) {
        return 4;
      }
      // No clean-up of its own: half of them are killed, half exit.
      if (rank % 2 == 0) ::kill(::getpid(), SIGKILL);
      return 0;
    });
    const std::vector<ProcessEnd> ends = clients.Wait(kPatienceMs);
    for (int rank = 0; rank < kAtOnce; ++rank) {
      if (rank % 2 == 0) {
        ASSERT_EQ(ends[rank].signal, SIGKILL) << ends[rank].exit_code;
      } else {
        ASSERT_EQ(ends[rank].exit_code, 0);
      }
    }
  }
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
}

}  // namespace
}  // namespace spccl::testing
