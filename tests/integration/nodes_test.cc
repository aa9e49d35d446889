// Communicators over several nodes: real daemons, which meet over loopback, and real ranks.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "collective/op.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/support/collective_oracle.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kNodes = 3;

class NodesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (int node = 0; node < kNodes; ++node) {
      daemons_.push_back(StartServing({"--peers-listen=127.0.0.1:0"}));
    }
  }
  static void TearDownTestSuite() { daemons_.clear(); }

  static std::vector<const SpawnedDaemon*> Place(const std::vector<int>& node_of_rank) {
    std::vector<const SpawnedDaemon*> daemons;
    for (const int node : node_of_rank) daemons.push_back(daemons_[node].get());
    return daemons;
  }

  static std::vector<std::unique_ptr<SpawnedDaemon>> daemons_;
};
std::vector<std::unique_ptr<SpawnedDaemon>> NodesTest::daemons_;

spcclResult_t Call(const OpDesc& op, const void* send, void* recv, spcclComm_t comm) {
  const auto dtype = static_cast<spcclDataType_t>(op.dtype);
  const auto redop = static_cast<spcclRedOp_t>(op.redop);
  const auto root = static_cast<int>(op.root);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return spcclAllReduce(send, recv, op.count, dtype, redop, comm, nullptr);
    case OpKind::kAllGather:
      return spcclAllGather(send, recv, op.count, dtype, comm, nullptr);
    case OpKind::kReduceScatter:
      return spcclReduceScatter(send, recv, op.count, dtype, redop, comm, nullptr);
    case OpKind::kBroadcast:
      return spcclBroadcast(send, recv, op.count, dtype, root, comm, nullptr);
    case OpKind::kScatter:
      return spcclScatter(send, recv, op.count, dtype, root, comm, nullptr);
  }
  return spcclInvalidArgument;
}

// Every rank makes all ranks' inputs from the seed, calls, and compares with the oracle.
int RunAll(RankContext& context, const std::vector<OpDesc>& ops, uint64_t seed) {
  int ranks = 0;
  spcclCommCount(context.comm, &ranks);
  std::mt19937_64 random(seed);
  for (const OpDesc& op : ops) {
    std::vector<Bytes> send;
    for (int rank = 0; rank < ranks; ++rank) {
      send.push_back(RandomElements(op.dtype, SendElements(op, ranks), 0.9, false, &random));
    }
    const Bytes owed = CollectiveOracle(op, send)[context.rank];
    Bytes recv(owed.size());
    const spcclResult_t result = Call(op, send[context.rank].data(), recv.data(), context.comm);
    if (result != spcclSuccess) {
      context.report(std::string(NameOf(op.kind)) + ": " + spcclGetLastError(context.comm));
      return 1;
    }
    if (const auto at = FirstDifference(op.dtype, recv, owed)) {
      context.report(std::string(NameOf(op.kind)) + " of " + std::to_string(op.count) + " " +
                     std::string(NameOf(op.dtype)) + " differs at " + std::to_string(*at));
      return 1;
    }
  }
  return 0;
}

// Integers, whose sums do not depend on the order, and copies of a float.
std::vector<OpDesc> Operations(int ranks) {
  std::vector<OpDesc> ops;
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{70'001}}) {
    for (const RedOp redop : {RedOp::kSum, RedOp::kMax}) {
      ops.push_back({.kind = OpKind::kAllReduce,
                     .dtype = DType::kInt32,
                     .redop = redop,
                     .root = 0,
                     .count = count});
      ops.push_back({.kind = OpKind::kReduceScatter,
                     .dtype = DType::kInt64,
                     .redop = redop,
                     .root = 0,
                     .count = count / 4});
    }
    ops.push_back({.kind = OpKind::kAllGather, .dtype = DType::kFloat32, .count = count / 4});
    for (uint32_t root = 0; root < static_cast<uint32_t>(ranks); ++root) {
      ops.push_back(
          {.kind = OpKind::kBroadcast, .dtype = DType::kFloat16, .root = root, .count = count});
      ops.push_back(
          {.kind = OpKind::kScatter, .dtype = DType::kFloat32, .root = root, .count = count / 8});
    }
  }
  return ops;
}

TEST_F(NodesTest, EveryOperationGivesWhatItOwes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const char* algorithm : {"", "ring", "two-level-ring", "recursive-doubling",
                                "halving-doubling", "split", "direct", "tree"}) {
    SCOPED_TRACE(std::string("algorithm ") + algorithm);
    // Two nodes, three; blocks, zigzag, differing numbers.
    for (const std::vector<int>& node_of_rank :
         {std::vector<int>{0, 1}, {0, 1, 0, 1, 2}, {2, 2, 2, 0}}) {
      ::setenv("SPCCL_ALGO", algorithm, 1);
      const int ranks = static_cast<int>(node_of_rank.size());
      FaultJob job(Place(node_of_rank),
                   [=](RankContext& context) { return RunAll(context, Operations(ranks), seed); });
      // Many operations, and sanitizers make each ten times as long.
      EXPECT_TRUE(AllSucceeded(job.processes().Wait(6 * kPatienceMs)));
    }
  }
  ::unsetenv("SPCCL_ALGO");
}

TEST_F(NodesTest, SeveralCommunicatorsAtOnceOfTwoJobs) {
  std::vector<std::unique_ptr<FaultJob>> jobs;
  for (int i = 0; i < 10; ++i) {
    jobs.push_back(
        std::make_unique<FaultJob>(Place({i % 3, (i + 1) % 3, (i + 2) % 3}), KeepSumming));
  }
  for (const auto& job : jobs) {
    ASSERT_TRUE(job->processes().AwaitReport(0, "summing;", kPatienceMs));
  }
  for (const auto& job : jobs) job->Stop();
  for (const auto& job : jobs) EXPECT_TRUE(AllSucceeded(job->processes().Wait(kPatienceMs)));
}

TEST_F(NodesTest, RanksThatDisagreeAreToldBothValues) {
  FaultJob job(Place({0, 1}), [](RankContext& context) {
    std::vector<float> send(context.rank == 0 ? 100 : 200), recv(200);
    ReportResult(context, AllReduce(context, send, &recv));
    return 0;
  });
  for (const ProcessEnd& end : job.processes().Wait(kPatienceMs)) {
    const Told told = ParseResult(end.output);
    EXPECT_NE(told.result, spcclSuccess) << end.output;
    EXPECT_THAT(told.text, HasSubstr("100"));
    EXPECT_THAT(told.text, HasSubstr("200"));
  }
}

TEST_F(NodesTest, ACommunicatorCanBeMadeAndDestroyedAgainAndAgain) {
  const Holdings before = HoldingsOf(daemons_[1]->pid());
  for (int round = 0; round < 20; ++round) {
    FaultJob job(Place({0, 1, 2}), [](RankContext& context) {
      std::vector<float> send(100, 1), recv(100);
      if (AllReduce(context, send, &recv) != spcclSuccess) return 1;
      return spcclCommDestroy(context.comm) == spcclSuccess && recv[99] == 3 ? 0 : 2;
    });
    ASSERT_TRUE(AllSucceeded(job.processes().Wait(kPatienceMs)));
  }
  // Connections to the other nodes stay for a while: one stream and its data links each.
  const Holdings after = AwaitHoldings(daemons_[1]->pid(), before, 100);
  EXPECT_LE(after.descriptors, before.descriptors + 32);
  // Less, where what an earlier test held was still there at first.
  EXPECT_LE(after.shared_mappings, before.shared_mappings);
}

}  // namespace
}  // namespace spccl::testing
