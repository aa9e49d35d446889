// Quotas of jobs, as clients meet them. (All clients of one process are of one job.)
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/daemon/open_client.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::kPatienceMs;
using ::spccl::testing::RawBuffer;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The only job, which has a session.
JobInfo JobOf(DaemonEnv& env) {
  const auto snapshot = env.core().GetSnapshot();
  EXPECT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->jobs.size(), 1u);
  return snapshot->jobs.at(0);
}

void SetShare(DaemonEnv& env, const JobShareOverrides& share) {
  ASSERT_THAT(env.settings().SetShare(JobOf(env).id, share), IsOk());
  env.core().RefreshShares();
}

uint64_t Refusals(DaemonEnv& env, metrics::Quota quota) {
  const auto sample = env.core().GetCoreSample();
  EXPECT_THAT(sample, IsOk());
  return sample->telemetry.quota_refusals[static_cast<size_t>(quota)];
}

shm::Reply Deregister(RawClient& client, uint64_t buffer_id) {
  shm::Request request = client.Make(shm::RequestType::kDeregister);
  request.deregister.buffer_id = buffer_id;
  const auto reply = client.Call(request);
  EXPECT_THAT(reply, IsOk());
  return *reply;
}

void Destroy(RawRank& rank) {
  shm::Request request = rank.client.Make(shm::RequestType::kCommDestroy);
  request.comm.comm_id = rank.handle;
  const auto reply = rank.client.Call(request);
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply->result, 0u) << reply->message;
}

TEST(QuotaTest, BytesOfAllAJobsProcessesCountUntilTheyAreGivenBack) {
  DaemonEnv env;
  RawClient one = Open(env);
  auto other = std::make_unique<RawClient>(Open(env));
  SetShare(env, {.max_buffer_bytes = 10'000});
  const auto first = one.Allocate(4096);
  ASSERT_THAT(first, IsOk());
  const std::string id = JobOf(env).id;
  const auto refused = other->Allocate(8192);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("job " + id +
                        " would pass its quota of 10000 (max_buffer_bytes): it has 4096 and asks "
                        "for 8192 more"));
  EXPECT_EQ(JobOf(env).buffer_bytes, 4096u);
  EXPECT_EQ(JobOf(env).buffers, 1u);
  EXPECT_EQ(Refusals(env, metrics::Quota::kBufferBytes), 1u);
  EXPECT_EQ(Deregister(one, first->id).result, 0u);
  EXPECT_THAT(other->Allocate(8192), IsOk());
  // What a process has goes with it.
  EXPECT_FALSE(one.Allocate(4096).ok());
  other.reset();
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  while (JobOf(env).buffer_bytes != 0 && MonotonicNanos() < deadline_ns) {
  }
  EXPECT_THAT(one.Allocate(8192), IsOk());
  EXPECT_EQ(Refusals(env, metrics::Quota::kBufferBytes), 2u);
}

TEST(QuotaTest, CommunicatorsAreRefusedUntilOneIsGone) {
  DaemonEnv env;
  auto held = FormComm(env.socket_path(), 2);
  ASSERT_THAT(held, IsOk());
  SetShare(env, {.max_communicators = 1});
  const std::string expected = "job " + JobOf(env).id +
                               " would pass its quota of 1 (max_communicators): it has 1 and asks "
                               "for 1 more";
  EXPECT_THAT(std::string(FormComm(env.socket_path(), 2).status().message()), HasSubstr(expected));
  EXPECT_EQ(JobOf(env).communicators, 1u);
  for (RawRank& rank : *held) Destroy(rank);
  EXPECT_THAT(FormComm(env.socket_path(), 2), IsOk());
  EXPECT_GE(Refusals(env, metrics::Quota::kCommunicators), 1u);
}

struct Pair {
  explicit Pair(DaemonEnv& env) {
    auto formed = FormComm(env.socket_path(), 2);
    EXPECT_THAT(formed, IsOk());
    ranks = *std::move(formed);
    for (RawRank& rank : ranks) buffers.push_back(*rank.client.Allocate(4096));
  }
  void Push(size_t rank) {
    ASSERT_TRUE(ranks[rank].client.Push(AllReduceSlot(ranks[rank], buffers[rank], 100, 0, 2048)));
  }
  shm::Completion Await(size_t rank) {
    const auto completion = ranks[rank].client.AwaitCompletion();
    EXPECT_TRUE(completion.has_value());
    return completion.value_or(shm::Completion{});
  }
  std::vector<RawRank> ranks;
  std::vector<RawBuffer> buffers;
};

TEST(QuotaTest, AnOperationTooManyFailsOnAllItsRanks) {
  DaemonEnv env;
  Pair pair(env);
  SetShare(env, {.max_operations = 2});
  const std::string expected = "job " + JobOf(env).id +
                               " would pass its quota of 2 (max_operations): it has 2 and asks "
                               "for 1 more";
  for (int i = 0; i < 3; ++i) pair.Push(0);
  const shm::Completion refused = pair.Await(0);
  EXPECT_EQ(refused.ticket, 3u);
  EXPECT_EQ(refused.result, static_cast<uint32_t>(shm::Result::kSystemError));
  EXPECT_THAT(std::string(shm::TextOf(refused.message)), HasSubstr(expected));
  EXPECT_EQ(JobOf(env).operations, 3u);  // the other rank is still to call the third
  for (int i = 0; i < 3; ++i) pair.Push(1);
  for (const size_t rank : {0, 1}) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.Await(rank).result, 0u) << rank;
  }
  const shm::Completion others = pair.Await(1);
  EXPECT_EQ(others.ticket, 3u);
  EXPECT_EQ(others.result, static_cast<uint32_t>(shm::Result::kSystemError));
  EXPECT_THAT(std::string(shm::TextOf(others.message)), HasSubstr(expected));
  // It goes on.
  for (const size_t rank : {0, 1}) pair.Push(rank);
  for (const size_t rank : {0, 1}) EXPECT_EQ(pair.Await(rank).result, 0u);
  EXPECT_EQ(JobOf(env).operations, 0u);
  EXPECT_EQ(Refusals(env, metrics::Quota::kOperations), 1u);
}

// Large enough for the channels' threads: the core thread hears of each end after the ranks do.
TEST(QuotaTest, CallersThatWaitForEachOperationStayWithinAQuotaOfOne) {
  constexpr uint64_t kCount = 32 << 10, kBytes = kCount * sizeof(float);
  DaemonEnv env;
  auto formed = FormComm(env.socket_path(), 1);
  ASSERT_THAT(formed, IsOk());
  RawRank& rank = formed->at(0);
  const auto buffer = rank.client.Allocate(2 * kBytes);
  ASSERT_THAT(buffer, IsOk());
  SetShare(env, {.max_operations = 1});
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, kCount, 0, kBytes)));
    const auto completion = rank.client.AwaitCompletion();
    ASSERT_TRUE(completion.has_value());
    ASSERT_EQ(completion->result, 0u) << i << ": " << shm::TextOf(completion->message);
  }
  EXPECT_EQ(Refusals(env, metrics::Quota::kOperations), 0u);
}

TEST(QuotaTest, AChangeCountsForWhatComesNext) {
  DaemonEnv env;
  Pair pair(env);
  for (int i = 0; i < 5; ++i) pair.Push(0);
  const int64_t deadline_ns = MonotonicNanos() + kPatienceMs * 1'000'000;
  while (JobOf(env).operations != 5 && MonotonicNanos() < deadline_ns) {
  }
  SetShare(env, {.max_buffer_bytes = 1, .max_communicators = 1, .max_operations = 1});
  for (int i = 0; i < 5; ++i) pair.Push(1);
  for (const size_t rank : {0, 1}) {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(pair.Await(rank).result, 0u);
  }
  EXPECT_FALSE(pair.ranks[0].client.Allocate(4096).ok());
  ASSERT_THAT(env.settings().ResetShare(JobOf(env).id), IsOk());
  env.core().RefreshShares();
  EXPECT_THAT(pair.ranks[0].client.Allocate(4096), IsOk());
  EXPECT_EQ(JobOf(env).share, JobShare{});
}

}  // namespace
}  // namespace spccl::daemon
