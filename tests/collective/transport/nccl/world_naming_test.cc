// What a world does when NCCL finds another process gone, which names none: who misses a node names
// it, and nobody is blamed where nobody does.
#include <gmock/gmock.h>

#include "tests/collective/transport/nccl/running.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

using testing::HasSubstr;

void NameWithoutHaste(WorldOptions* options) {
  options->naming_deadline_ns = kNeverNs;
}

// Its world has heard of it when this returns.
void LoseAnotherProcess(Cluster* cluster, uint32_t rank) {
  Fake().FailRank(static_cast<int>(rank), kRemoteError);
  ASSERT_TRUE(Fake().AwaitTold(static_cast<int>(rank)));
  cluster->gpus[rank]->Flush();
}

// Of the nodes 0 to 2, of a GPU each, 2 is gone. NCCL says so to 1, and the connection to the node
// that is `told_first`.
void ExpectTheNodeThatIsGoneNamed(uint32_t told_first) {
  SCOPED_TRACE(told_first);
  Cluster cluster({0, 1, 2}, TestSeed(), [](WorldOptions* options) {
    CloseSoon(options);
    NameWithoutHaste(options);
  });
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  cluster.net.Cut(2);
  LoseAnotherProcess(&cluster, 1);
  EXPECT_TRUE(cluster.worlds[1]->status().ok()) << cluster.worlds[1]->status();
  // What is opened meanwhile shares the fate.
  std::vector<RecordingSink> late_sinks(2);
  std::vector<std::unique_ptr<OperationTransport>> late(2);
  for (uint32_t node = 0; node < 2; ++node) {
    auto opened = running.communicators[node]->OpenOperation(Operation(2));
    ASSERT_TRUE(opened.ok()) << opened.status();
    late[node] = *std::move(opened);
    late[node]->Start(&late_sinks[node]);
  }
  EXPECT_TRUE(late[1]->Send({.from = 1, .to = 0}, MakeFrame(cluster.gpus[1].get(), 1000, 1)).ok());
  cluster.worlds[told_first]->OnNodeDown(2, absl::UnavailableError("connection reset"));
  for (uint32_t node = 0; node < 2; ++node) {
    for (RecordingSink* sink : {running.sinks[node].get(), &late_sinks[node]}) {
      const auto [rank, reason] = sink->AwaitFailure();
      EXPECT_EQ(rank, 2U);
      EXPECT_EQ(Text(reason), "lost GPU rank 2: connection reset");
    }
    ASSERT_TRUE(cluster.events[node].failed.Await());
    EXPECT_EQ(cluster.events[node].rank, 2U);
  }
}

TEST(NcclWorldNamingTest, ANodeThatNcclFindsGoneFirstIsNamedByWhoMissesIt) {
  ExpectTheNodeThatIsGoneNamed(1);
  ExpectTheNodeThatIsGoneNamed(0);
}

// Nobody misses a node: the network between GPUs, perhaps.
TEST(NcclWorldNamingTest, WhoFindsAnotherProcessGoneIsNotBlamedForIt) {
  Cluster cluster({0, 1, 2}, TestSeed(),
                  [](WorldOptions* options) { options->naming_deadline_ns = kSoonNs; });
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  LoseAnotherProcess(&cluster, 1);
  const std::string expected =
      "NCCL on GPU rank 1 found another process gone, before any node was missed: GPU rank 1: "
      "moving frames: remote process exited (says the fake)";
  for (uint32_t node = 0; node < 3; ++node) {
    const auto [rank, reason] = running.sinks[node]->AwaitFailure();
    EXPECT_EQ(rank, kNobody);
    EXPECT_EQ(Text(reason), expected);
    EXPECT_EQ(reason.code(), absl::StatusCode::kAborted);
    ASSERT_TRUE(cluster.events[node].failed.Await());
    EXPECT_EQ(cluster.events[node].rank, kNobody);
    const auto opened = running.communicators[node]->OpenOperation(Operation(2));
    EXPECT_EQ(Text(opened.status()), expected);
  }
}

TEST(NcclWorldNamingTest, AnotherProcessMayBeGoneBeforeTheWorldIsUp) {
  Cluster cluster({0, 1, 2}, TestSeed(), [](WorldOptions* options) {
    Fake().HoldInit(true);
    Fake().FailRank(2, kRemoteError);
    options->init_deadline_ns = kNeverNs;
    options->naming_deadline_ns = kSoonNs;
  });
  for (auto& events : cluster.events) {
    ASSERT_TRUE(events.failed.Await());
    EXPECT_EQ(events.rank, kNobody);
    EXPECT_THAT(Text(events.reason), HasSubstr("NCCL on GPU rank 2 found another process gone"));
  }
}

TEST(NcclWorldNamingTest, AGpuThatFailsWhileANameIsAwaitedIsTheReason) {
  Cluster cluster({0, 1, 1}, TestSeed(), NameWithoutHaste);
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  LoseAnotherProcess(&cluster, 1);
  Fake().FailRank(2, kUnhandledCudaError);
  running.ExpectLost(2, "unhandled cuda error");
}

TEST(NcclWorldNamingTest, AWorldCanEndWhileANameIsAwaited) {
  Cluster cluster({0, 1}, TestSeed(), [](WorldOptions* options) {
    CloseSoon(options);
    NameWithoutHaste(options);
  });
  ASSERT_TRUE(cluster.AwaitUp());
  LoseAnotherProcess(&cluster, 1);
  cluster.Close();
  EXPECT_TRUE(cluster.events[1].reason.ok()) << cluster.events[1].reason;
}

}  // namespace
}  // namespace spccl::transport::nccl
