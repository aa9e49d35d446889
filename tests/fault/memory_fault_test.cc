// Buffers that go away under the daemon, rings that fill up, rubbish in a ring.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/support/raw_client.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

TEST(MemoryFaultTest, AnUnmappedBufferIsAnErrorThatNamesItsRank) {
  const auto daemon = StartServing();
  FaultJob unharmed(*daemon, 2, KeepSumming);
  FaultJob job(*daemon, 2, [](RankContext& context) {
    constexpr size_t kBytes = 1 << 20;
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* handle = nullptr;
    if (spcclCommRegister(context.comm, memory, kBytes, &handle) != spcclSuccess) return 1;
    if (context.rank == 1) ::munmap(memory, kBytes);
    ReportResult(context, spcclAllReduce(memory, memory, kBytes / sizeof(float), spcclFloat32,
                                         spcclSum, context.comm, nullptr));
    return 0;
  });
  for (const ProcessEnd& end : job.processes().Wait(kPatienceMs)) {
    EXPECT_TRUE(end.exited && end.exit_code == 0) << end.output << " signal " << end.signal;
    const Told told = ParseResult(end.output);
    EXPECT_NE(told.result, spcclSuccess);
    EXPECT_THAT(told.text, HasSubstr("rank 1"));
  }
  unharmed.Stop();
  EXPECT_TRUE(AllSucceeded(unharmed.processes().Wait(kPatienceMs)));
}

TEST(MemoryFaultTest, ManyMoreOperationsThanTheRingHoldsWaitTheirTurn) {
  const auto daemon = StartServing();
  FaultJob job(*daemon, 2, [](RankContext& context) {
    constexpr int kOperations = 2000;  // the rings hold 256
    spcclStream_t stream = nullptr;
    if (spcclStreamCreate(&stream) != spcclSuccess) return 1;
    std::vector<float> send(kOperations), recv(kOperations);
    for (int i = 0; i < kOperations; ++i) send[i] = static_cast<float>(i);
    // Rank 1 begins only when rank 0 cannot go on without it.
    if (context.rank == 1) AwaitStop(context.stop);
    for (int i = 0; i < kOperations; ++i) {
      if (context.rank == 0 && i == 200) RaiseStop(context.stop);
      if (spcclAllReduce(&send[i], &recv[i], 1, spcclFloat32, spcclSum, context.comm, stream) !=
          spcclSuccess) {
        context.report(spcclGetLastError(context.comm));
        return 2;
      }
    }
    if (spcclStreamSynchronize(stream) != spcclSuccess) return 3;
    for (int i = 0; i < kOperations; ++i) {
      if (recv[i] != 2.0f * send[i]) return 4;
    }
    return 0;
  });
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
}

// Each client forms a communicator of its own, then writes random slots, random indices or both
// into its ring. Whatever happens to it, the daemon and a healthy job live on.
TEST(RubbishTest, RandomSlotsAndIndicesHurtOnlyTheirWriter) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto daemon = StartServing();
  const Holdings baseline = HoldingsOf(daemon->pid());
  {
    FaultJob unharmed(*daemon, 2, KeepSumming);
    ASSERT_TRUE(unharmed.processes().AwaitReport(0, "summing;", kPatienceMs));
    for (int round = 0; round < 200; ++round) {
      auto ranks = FormComm(daemon->socket_path(), 1);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      RawClient& client = ranks->front().client;
      for (int slot = 0; slot < 20; ++slot) {
        shm::Submission rubbish;
        auto* const words = reinterpret_cast<uint64_t*>(&rubbish);
        for (size_t i = 0; i < sizeof rubbish / sizeof *words; ++i) {
          constexpr uint64_t kExtremes[] = {0, 1, ~uint64_t{0}, uint64_t{1} << 63, 1 << 20};
          words[i] = random() % 2 == 0 ? random() : kExtremes[random() % 5];
        }
        if (random() % 2 == 0) rubbish.comm_id = ranks->front().handle;
        client.Push(rubbish);
      }
      if (random() % 2 == 0) {
        client.segment()->submission_control.tail.store(static_cast<uint32_t>(random()));
        client.segment()->completion_control.head.store(static_cast<uint32_t>(random()));
        client.Ring();
      }
    }
    unharmed.Stop();
    EXPECT_TRUE(AllSucceeded(unharmed.processes().Wait(kPatienceMs)));
  }
  EXPECT_EQ(AwaitHoldings(daemon->pid(), baseline), baseline);
}

}  // namespace
}  // namespace spccl::testing
