// What the metrics see of a daemon's core: tests of engine_metrics.cc and of what feeds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/metrics/sample.h"
#include "tests/daemon/fake_nodes.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using metrics::BufferKind;
using metrics::CoreSample;
using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::kLargeCount;
using ::spccl::testing::kPatienceMs;
using ::spccl::testing::RawBuffer;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;

CoreSample SampleOf(DaemonEnv& env) {
  auto sample = env.core().GetCoreSample();
  EXPECT_THAT(sample, IsOk());
  return *std::move(sample);
}

// Until `holds`, which the core's bookkeeping brings about by itself.
template <typename Holds>
CoreSample AwaitSample(DaemonEnv& env, Holds holds) {
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  CoreSample sample = SampleOf(env);
  while (!holds(sample) && MonotonicNanos() < deadline_ns) sample = SampleOf(env);
  EXPECT_TRUE(holds(sample));
  return sample;
}

const metrics::OpTotals& AllReduces(const CoreSample& sample) {
  return sample.telemetry
      .ops[static_cast<size_t>(OpKind::kAllReduce)][static_cast<size_t>(DType::kFloat32)];
}

uint64_t Count(const metrics::Histogram& histogram) {
  uint64_t count = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) count += histogram.count(i);
  return count;
}

// Two ranks and a buffer of each.
struct RankPair {
  explicit RankPair(DaemonEnv& env) {
    auto formed = FormComm(env.socket_path(), 2);
    EXPECT_THAT(formed, IsOk());
    ranks = *std::move(formed);
    for (RawRank& rank : ranks) {
      auto buffer = rank.client.Allocate(2 * kLargeCount * sizeof(float));
      EXPECT_THAT(buffer, IsOk());
      buffers.push_back(*std::move(buffer));
    }
  }
  void Push(size_t rank, uint64_t count) {
    ASSERT_TRUE(ranks[rank].client.Push(
        AllReduceSlot(ranks[rank], buffers[rank], count, 0, count * sizeof(float))));
  }
  void AllReduce(uint64_t count) {
    for (size_t r = 0; r < 2; ++r) Push(r, count);
    for (RawRank& rank : ranks) {
      const auto completion = rank.client.AwaitCompletion();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->result, 0u) << completion->message;
    }
  }

  std::vector<RawRank> ranks;
  std::vector<RawBuffer> buffers;
};

TEST(EngineMetricsTest, OperationsAreCountedAndOutliveTheirCommunicator) {
  DaemonEnv env;
  {
    RankPair pair(env);
    pair.AllReduce(16);
    pair.AllReduce(kLargeCount);
    const CoreSample sample =
        AwaitSample(env, [](const CoreSample& now) { return AllReduces(now).ok == 2; });
    EXPECT_EQ(sample.communicators.at("ready"), 1);
    EXPECT_EQ(sample.sessions, 2);
    ASSERT_EQ(sample.jobs.size(), 1);
    EXPECT_EQ(sample.jobs[0].operations, 2);
    EXPECT_EQ(sample.jobs[0].communicators, 1);
    EXPECT_EQ(sample.jobs[0].buffer_bytes, sample.buffers.Of(BufferKind::kMapped).bytes);
  }
  const CoreSample after =
      AwaitSample(env, [](const CoreSample& now) { return now.sessions == 0 && now.jobs.empty(); });
  EXPECT_EQ(AllReduces(after).ok, 2);
  EXPECT_EQ(AllReduces(after).payload_bytes, 2 * (16 + kLargeCount) * sizeof(float));
  EXPECT_EQ(after.communicators.at("ready"), 0);
  EXPECT_EQ(after.running_ops, 0);
  EXPECT_EQ(Count(after.telemetry.durations[static_cast<size_t>(OpKind::kAllReduce)]), 2);
  EXPECT_EQ(Count(after.telemetry.waits[0]), 2);
  // Only the large one was queued.
  EXPECT_EQ(Count(after.channel_waits), 1);
  EXPECT_EQ(after.events.at("session-open"), 2);
  EXPECT_EQ(after.events.at("session-closed"), 2);
}

TEST(EngineMetricsTest, AnOperationThatWaitsForARankIsWaitingAndThenLost) {
  DaemonEnv env;
  RankPair pair(env);
  pair.Push(0, 16);
  AwaitSample(env, [](const CoreSample& now) { return now.waiting_ops == 1; });
  { const RawRank gone = std::move(pair.ranks[1]); }
  pair.ranks.pop_back();
  const CoreSample after =
      AwaitSample(env, [](const CoreSample& now) { return now.communicators.at("failed") == 1; });
  const auto aborted = static_cast<size_t>(absl::StatusCode::kAborted);
  EXPECT_EQ(after.telemetry.comm_failures[aborted], 1);
  EXPECT_EQ(after.telemetry.op_errors[aborted], 1);
  EXPECT_EQ(after.waiting_ops, 0);
  EXPECT_EQ(after.telemetry.broken_sessions, 0);
}

TEST(EngineMetricsTest, TheTallyOfBuffersIsWhatAWalkOverThemFinds) {
  DaemonEnv env;
  auto first = RawClient::Open(env.socket_path());
  ASSERT_THAT(first, IsOk());
  std::vector<RawBuffer> buffers;
  {
    auto second = RawClient::Open(env.socket_path());
    ASSERT_THAT(second, IsOk());
    for (const size_t bytes : {4096, 8192, 12288}) {
      for (RawClient* client : {&*first, &*second}) {
        auto buffer = client->Allocate(bytes);
        ASSERT_THAT(buffer, IsOk());
        buffers.push_back(*std::move(buffer));
      }
    }
    const auto walk = env.core().GetSnapshot();
    ASSERT_THAT(walk, IsOk());
    uint64_t bytes = 0;
    for (const BufferInfo& buffer : walk->buffers) bytes += buffer.size_bytes;
    const CoreSample sample = SampleOf(env);
    EXPECT_EQ(sample.buffers.Of(BufferKind::kMapped).buffers, walk->buffers.size());
    EXPECT_EQ(sample.buffers.Of(BufferKind::kMapped).bytes, bytes);
    EXPECT_EQ(bytes, 2 * (4096 + 8192 + 12288));
  }
  shm::Request request = first->Make(shm::RequestType::kDeregister);
  request.deregister.buffer_id = buffers[0].id;
  ASSERT_THAT(first->Call(request), IsOk());
  const CoreSample after =
      AwaitSample(env, [](const CoreSample& now) { return now.sessions == 1; });
  EXPECT_EQ(after.buffers.Of(BufferKind::kMapped),
            (metrics::BufferTally::Count{.buffers = 2, .bytes = 8192 + 12288}));
}

TEST(EngineMetricsTest, AClientThatBreaksTheProtocolCounts) {
  DaemonEnv env;
  auto client = RawClient::Open(env.socket_path());
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(client->SendBytes("rubbish", 7), IsOk());
  ASSERT_TRUE(client->AwaitHangup());
  const CoreSample sample = SampleOf(env);
  EXPECT_EQ(sample.telemetry.broken_sessions, 1);
  EXPECT_EQ(sample.sessions, 0);
}

TEST(EngineMetricsTest, LinksToConnectedNodesHaveTheirSpeeds) {
  constexpr NodeId kA = 2, kB = 3;
  FakeNodes nodes;
  DaemonEnv env({}, nullptr, &nodes);
  nodes.SetSpeed(kA, {.round_trip_ns = 30'000, .bytes_per_second = 1.25e9});
  nodes.Up(kA);
  nodes.Up(kB);
  const CoreSample sample = AwaitSample(env, [](const CoreSample& now) { return now.peers == 2; });
  ASSERT_TRUE(sample.links.contains("fake:2"));
  EXPECT_DOUBLE_EQ(sample.links.at("fake:2").round_trip_seconds, 3e-5);
  EXPECT_EQ(sample.links.at("fake:2").bytes_per_second, 1.25e9);
  EXPECT_EQ(sample.links.at("fake:3").bytes_per_second, 0);
  EXPECT_EQ(sample.events.at("node-up"), 2);
}

}  // namespace
}  // namespace spccl::daemon
