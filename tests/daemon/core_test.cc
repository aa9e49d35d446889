#include "daemon/core.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/daemon/gate_hooks.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FailsWith;
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::kLargeCount;
using ::spccl::testing::RawBuffer;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ring {
  std::vector<RawRank> ranks;
  std::vector<RawBuffer> buffers;  // of each rank: inputs, then outputs
};

Ring MakeRing(DaemonEnv& env, uint32_t ranks, uint64_t bytes) {
  Ring ring;
  auto formed = FormComm(env.socket_path(), ranks);
  EXPECT_THAT(formed, IsOk());
  ring.ranks = *std::move(formed);
  for (RawRank& rank : ring.ranks) {
    auto buffer = rank.client.Allocate(2 * bytes);
    EXPECT_THAT(buffer, IsOk());
    ring.buffers.push_back(*std::move(buffer));
  }
  return ring;
}

shm::Submission Slot(Ring& ring, size_t rank, uint64_t count) {
  return AllReduceSlot(ring.ranks[rank], ring.buffers[rank], count, 0, count * sizeof(float));
}

void ExpectRankSucceeds(RawRank& rank) {
  const auto completion = rank.client.AwaitCompletion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->result, 0u) << completion->message;
}

template <typename Matcher>
void ExpectError(RawRank& rank, shm::Result result, const Matcher& message) {
  const auto completion = rank.client.AwaitCompletion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->result, static_cast<uint32_t>(result)) << completion->message;
  EXPECT_THAT(std::string(shm::TextOf(completion->message)), message);
}

// Rank r's input is r + 1 + i % 7.
void AllReduceOnce(Ring& ring, uint64_t count) {
  const size_t size = ring.ranks.size();
  for (size_t r = 0; r < size; ++r) {
    for (uint64_t i = 0; i < count; ++i) ring.buffers[r].as<float>()[i] = 1.0f + r + i % 7;
    ASSERT_TRUE(ring.ranks[r].client.Push(Slot(ring, r, count)));
  }
  const float base = static_cast<float>(size * (size + 1)) / 2;
  for (size_t r = 0; r < size; ++r) {
    const auto completion = ring.ranks[r].client.AwaitCompletion();
    ASSERT_TRUE(completion.has_value());
    ASSERT_EQ(completion->result, 0u) << completion->message;
    EXPECT_EQ(completion->ticket, ring.ranks[r].client.next_ticket - 1);
    EXPECT_EQ(completion->comm_id, ring.ranks[r].handle);
    const float* const output = ring.buffers[r].as<float>(count * sizeof(float));
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(output[i], base + size * (i % 7)) << i;
  }
}

class AllReduceTest : public ::testing::TestWithParam<std::pair<uint32_t, uint64_t>> {};

TEST_P(AllReduceTest, SumsOverRanks) {
  const auto [ranks, count] = GetParam();
  DaemonEnv env;
  Ring ring = MakeRing(env, ranks, count * sizeof(float));
  for (int repeat = 0; repeat < 3; ++repeat) AllReduceOnce(ring, count);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduceTest,
                         ::testing::Values(std::pair(1u, 10ul), std::pair(2u, 2ul),
                                           std::pair(4u, 1000ul), std::pair(2u, 1ul << 20),
                                           std::pair(5u, 300'001ul)));

TEST(CoreTest, RunsEveryOperation) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 4096);
  constexpr uint64_t kCount = 64;
  for (int op = 0; op < kOpKindCount; ++op) {
    for (size_t r = 0; r < 2; ++r) {
      for (uint64_t i = 0; i < 2 * kCount; ++i) ring.buffers[r].as<float>()[i] = 10.0f * r + i;
      shm::Submission slot = AllReduceSlot(ring.ranks[r], ring.buffers[r], kCount, 0, 4096);
      slot.op = static_cast<uint8_t>(op);
      slot.root = HasRoot(static_cast<OpKind>(op)) ? 1 : 0;
      ASSERT_TRUE(ring.ranks[r].client.Push(slot));
    }
    for (size_t r = 0; r < 2; ++r) {
      ExpectRankSucceeds(ring.ranks[r]);
      const float* const output = ring.buffers[r].as<float>(4096);
      for (uint64_t i = 0; i < kCount; ++i) {
        switch (static_cast<OpKind>(op)) {
          case OpKind::kAllGather:
            ASSERT_EQ(output[i], i);
            ASSERT_EQ(output[kCount + i], 10.0f + i);
            break;
          case OpKind::kReduceScatter:
            ASSERT_EQ(output[i], 10.0f + 2 * (r * kCount + i));
            break;
          case OpKind::kAllReduce:
            ASSERT_EQ(output[i], 10.0f + 2 * i);
            break;
          case OpKind::kBroadcast:
            ASSERT_EQ(output[i], 10.0f + i);
            break;
          case OpKind::kScatter:
            ASSERT_EQ(output[i], 10.0f + r * kCount + i);
            break;
        }
      }
    }
  }
}

TEST(CoreTest, OperationsWithoutElementsComplete) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 64);
  for (size_t r = 0; r < 2; ++r) {
    shm::Submission slot = Slot(ring, r, 0);
    slot.send = slot.recv = {};
    ASSERT_TRUE(ring.ranks[r].client.Push(slot));
  }
  for (RawRank& rank : ring.ranks) ExpectRankSucceeds(rank);
}

TEST(CoreTest, APipelineOfOperationsRunsInOrder) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, kLargeCount * sizeof(float));
  // In place, each doubling what the one before has left; large and small ones mixed.
  for (RawBuffer& buffer : ring.buffers) {
    for (uint64_t i = 0; i < kLargeCount; ++i) buffer.as<float>()[i] = 1.0f;
  }
  constexpr int kSteps = 20;
  for (int step = 0; step < kSteps; ++step) {
    for (size_t r = 0; r < 2; ++r) {
      const uint64_t count = step % 2 == 0 ? kLargeCount : 100;
      ASSERT_TRUE(
          ring.ranks[r].client.Push(AllReduceSlot(ring.ranks[r], ring.buffers[r], count, 0, 0)));
    }
  }
  for (int step = 0; step < kSteps; ++step) {
    for (RawRank& rank : ring.ranks) ExpectRankSucceeds(rank);
  }
  for (RawBuffer& buffer : ring.buffers) {
    EXPECT_EQ(buffer.as<float>()[99], static_cast<float>(1 << kSteps));
    EXPECT_EQ(buffer.as<float>()[100], static_cast<float>(1 << (kSteps / 2)));
  }
}

TEST(CoreTest, OneProcessMayBeSeveralRanks) {
  DaemonEnv env;
  auto client = RawClient::Open(env.socket_path());
  ASSERT_THAT(client, IsOk());
  const auto unique_id = client->UniqueId();
  ASSERT_THAT(unique_id, IsOk());
  std::vector<shm::Request> requests;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    requests.push_back(client->MakeCommInit(*unique_id, 3, rank));
    ASSERT_THAT(client->Send(requests.back()), IsOk());
  }
  auto buffer = client->Allocate(4096);
  ASSERT_THAT(buffer, IsOk());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const auto reply = client->AwaitReply(requests[rank].request_id);
    ASSERT_THAT(reply, IsOk());
    ASSERT_EQ(reply->result, 0u) << reply->message;
    buffer->as<int32_t>()[rank] = static_cast<int32_t>(rank) + 1;
    shm::Submission slot{};
    slot.ticket = rank;
    slot.comm_id = static_cast<uint32_t>(reply->value);
    slot.op = static_cast<uint8_t>(OpKind::kAllReduce);
    slot.dtype = static_cast<uint8_t>(DType::kInt32);
    slot.count = 1;
    slot.send = {.buffer_id = buffer->id, .offset = 4 * rank};
    slot.recv = {.buffer_id = buffer->id, .offset = 2048 + 4 * rank};
    ASSERT_TRUE(client->Push(slot));
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto completion = client->AwaitCompletion();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->result, 0u) << completion->message;
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(buffer->as<int32_t>(2048)[rank], 6);
}

TEST(CoreTest, ReachesOrdinaryMemoryByAttach) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 64);
  std::vector<std::vector<float>> inputs(2), outputs(2);
  for (size_t r = 0; r < 2; ++r) {
    inputs[r].assign(kLargeCount, 1.0f + r);
    outputs[r].assign(kLargeCount, 0.0f);
    ASSERT_THAT(ring.ranks[r].client.HandOverMemory(), IsOk());
    shm::Request request = ring.ranks[r].client.Make(shm::RequestType::kRegisterAddress);
    request.buffer.address = reinterpret_cast<uint64_t>(outputs[r].data());
    request.buffer.size_bytes = kLargeCount * sizeof(float);
    const auto reply = ring.ranks[r].client.Call(request);
    ASSERT_THAT(reply, IsOk());
    ASSERT_EQ(reply->result, 0u) << reply->message;
    shm::Submission slot = Slot(ring, r, kLargeCount);
    slot.send = {.buffer_id = shm::kRawAddress,
                 .offset = reinterpret_cast<uint64_t>(inputs[r].data())};
    slot.recv = {.buffer_id = reply->value, .offset = 0};
    ASSERT_TRUE(ring.ranks[r].client.Push(slot));
  }
  for (RawRank& rank : ring.ranks) ExpectRankSucceeds(rank);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_THAT(outputs[r], ::testing::Each(3.0f));
  }
}

TEST(CoreTest, MemoryThatIsNotThereFailsTheOperationOnAllRanks) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, kLargeCount * sizeof(float));
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, kLargeCount)));
  ASSERT_THAT(ring.ranks[1].client.HandOverMemory(), IsOk());
  shm::Submission slot = Slot(ring, 1, kLargeCount);
  slot.recv = {.buffer_id = shm::kRawAddress, .offset = 4096};
  ASSERT_TRUE(ring.ranks[1].client.Push(slot));
  ExpectError(ring.ranks[1], shm::Result::kInvalidArgument, HasSubstr("1000"));
  ExpectError(ring.ranks[0], shm::Result::kRemoteError, HasSubstr("rank 1 (pid "));
  AllReduceOnce(ring, 1000);
}

TEST(CoreTest, AMismatchIsToldToAllRanksWithBothCalls) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 3, 4096);
  for (size_t r = 0; r < 3; ++r) {
    shm::Submission slot = Slot(ring, r, r == 1 ? 20 : 10);
    ASSERT_TRUE(ring.ranks[r].client.Push(slot));
  }
  for (RawRank& rank : ring.ranks) {
    ExpectError(rank, shm::Result::kInvalidUsage,
                AllOf(HasSubstr("rank 0 called all_reduce count=10 float32 sum"),
                      HasSubstr("rank 1 all_reduce count=20 float32 sum")));
  }
  AllReduceOnce(ring, 100);
}

TEST(CoreTest, AWrongArgumentIsToldToAllRanks) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 4096);
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, 10)));
  shm::Submission slot = Slot(ring, 1, 10);
  slot.dtype = 77;
  ASSERT_TRUE(ring.ranks[1].client.Push(slot));
  ExpectError(ring.ranks[1], shm::Result::kInvalidArgument, HasSubstr("data type 77"));
  ExpectError(ring.ranks[0], shm::Result::kRemoteError,
              AllOf(HasSubstr("rank 1 (pid "), HasSubstr("data type 77")));
  AllReduceOnce(ring, 100);
}

TEST(CoreTest, ACommunicatorOfAnotherSessionIsUnknown) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 1, 4096);
  shm::Submission slot = Slot(ring, 0, 10);
  slot.comm_id = ring.ranks[0].handle + 1;
  ASSERT_TRUE(ring.ranks[0].client.Push(slot));
  ExpectError(ring.ranks[0], shm::Result::kInvalidArgument, HasSubstr("communicator"));
}

TEST(CoreTest, ARankThatDestroysItsCommunicatorIsNotWaitedFor) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 4096);
  shm::Request request = ring.ranks[0].client.Make(shm::RequestType::kCommDestroy);
  request.comm.comm_id = ring.ranks[0].handle;
  const auto reply = ring.ranks[0].client.Call(request);
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply->result, 0u);
  ASSERT_TRUE(ring.ranks[1].client.Push(Slot(ring, 1, 10)));
  ExpectError(ring.ranks[1], shm::Result::kRemoteError,
              AllOf(HasSubstr("rank 0"), HasSubstr("has left")));
}

TEST(CoreTest, AnAbortFailsTheRunningOperationEverywhere) {
  const auto gate = std::make_shared<Gate>();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  Ring ring = MakeRing(env, 2, kLargeCount * sizeof(float));
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(ring.ranks[r].client.Push(Slot(ring, r, kLargeCount)));
    ASSERT_TRUE(ring.ranks[r].client.Push(Slot(ring, r, kLargeCount)));
  }
  ASSERT_TRUE(gate->AwaitEntered(1));
  const auto snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->comms[0].members[0].phase, "running");
  shm::Request request = ring.ranks[1].client.Make(shm::RequestType::kCommAbort);
  request.comm.comm_id = ring.ranks[1].handle;
  ASSERT_THAT(ring.ranks[1].client.Call(request), IsOk());
  const auto is_told = AllOf(HasSubstr("rank 1 (pid "), HasSubstr("has aborted"));
  // The second operation does not run: it ends at once, the first when its slice has ended.
  ExpectError(ring.ranks[0], shm::Result::kRemoteError, is_told);
  const auto notice = ring.ranks[0].client.AwaitNotice(shm::ReplyType::kCommFailed);
  ASSERT_THAT(notice, IsOk());
  EXPECT_EQ(notice->value, ring.ranks[0].handle);
  EXPECT_THAT(std::string(shm::TextOf(notice->message)), is_told);
  gate->Open();
  ExpectError(ring.ranks[0], shm::Result::kRemoteError, is_told);
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, kLargeCount)));
  ExpectError(ring.ranks[0], shm::Result::kRemoteError, is_told);
}

TEST(CoreTest, AnOperatorMayAbort) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 4096);
  EXPECT_THAT(env.core().AbortComm(99, "x"),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("99")));
  const auto snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_THAT(env.core().AbortComm(snapshot->comms.at(0).id, "maintenance"), IsOk());
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, 10)));
  ExpectError(ring.ranks[0], shm::Result::kRemoteError, HasSubstr("maintenance"));
}

TEST(CoreTest, ALateRankIsNamedWhenTheTimeIsUp) {
  CoreOptions options;
  options.op_timeout_ns = 100'000'000;
  DaemonEnv env(options);
  Ring ring = MakeRing(env, 3, 4096);
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, 10)));
  ASSERT_TRUE(ring.ranks[1].client.Push(Slot(ring, 1, 10)));
  for (const size_t r : {0u, 1u}) {
    ExpectError(ring.ranks[r], shm::Result::kRemoteError,
                AllOf(HasSubstr("waiting for rank 2 (pid "), HasSubstr("operation 0")));
  }
}

TEST(CoreTest, CommunicatorsAndBuffersAreShownInTheOrderOfTheirNumbers) {
  DaemonEnv env;
  std::vector<std::vector<RawRank>> comms;
  for (int i = 0; i < 8; ++i) {
    auto ranks = FormComm(env.socket_path(), 1);
    ASSERT_THAT(ranks, IsOk());
    for (int j = 0; j < 2; ++j) ASSERT_THAT((*ranks)[0].client.Allocate(4096), IsOk());
    comms.push_back(*std::move(ranks));
  }
  const auto snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->comms.size(), 8u);
  EXPECT_TRUE(std::ranges::is_sorted(snapshot->comms, {}, &CommInfo::id));
  EXPECT_EQ(snapshot->buffers.size(), 16u);
  EXPECT_TRUE(std::ranges::is_sorted(snapshot->buffers, {}, &BufferInfo::id));
}

TEST(CoreTest, CallersWishesReachTheTask) {
  const auto gate = std::make_shared<Gate>();
  gate->Open();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  auto client = RawClient::Open(env.socket_path());
  ASSERT_THAT(client, IsOk());
  const auto unique_id = client->UniqueId();
  ASSERT_THAT(unique_id, IsOk());
  shm::Request request = client->MakeCommInit(*unique_id, 1, 0);
  shm::SetText(request.comm_init.algorithm, "ring");
  shm::SetText(request.comm_init.codec, "coo");
  const auto reply = client->Call(request);
  ASSERT_THAT(reply, IsOk());
  auto buffer = client->Allocate(4096);
  ASSERT_THAT(buffer, IsOk());
  RawRank rank{.client = *std::move(client), .handle = static_cast<uint32_t>(reply->value)};
  ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, 10, 0, 2048)));
  ExpectRankSucceeds(rank);
  ASSERT_EQ(gate->settings().size(), 1u);
  EXPECT_EQ(gate->settings()[0].algorithm, policy::Algorithm::kRing);
  EXPECT_EQ(gate->settings()[0].codec, policy::Codec::kCoo);
  const auto snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_EQ(snapshot->comms.size(), 1u);
  EXPECT_EQ(snapshot->comms[0].wishes.algorithm, policy::Algorithm::kRing);
  EXPECT_EQ(snapshot->comms[0].wishes.codec, policy::Codec::kCoo);
}

TEST(CoreTest, AnOperatorsWordOnTheCommunicatorWinsOverItsCallers) {
  DaemonEnv env;
  const CoreHooks hooks = HooksOf(&env.settings(), &env.jobs());
  policy::Overrides job, wish, comm;
  job.algorithm = policy::Algorithm::kLocal;
  wish.algorithm = policy::Algorithm::kRing;
  ASSERT_THAT(env.settings().Set(JobScope{"u1.s1"}, job), IsOk());
  EXPECT_EQ(hooks.settings("u1.s1", 3, {}).algorithm, policy::Algorithm::kLocal);
  EXPECT_EQ(hooks.settings("u1.s1", 3, wish).algorithm, policy::Algorithm::kRing);
  comm.algorithm = policy::Algorithm::kLocal;
  ASSERT_THAT(env.settings().Set(CommScope{3}, comm), IsOk());
  EXPECT_EQ(hooks.settings("u1.s1", 3, wish).algorithm, policy::Algorithm::kLocal);
  hooks.forget(3);
  EXPECT_EQ(hooks.settings("u1.s1", 3, wish).algorithm, policy::Algorithm::kRing);
}

TEST(CoreTest, ARegisteredJobKeepsItsCountersBetweenItsStepsUntilItIsEnded) {
  DaemonEnv env;
  const RegisteredJob job{.number = 77, .uid = ::getuid(), .cgroup = ""};
  ASSERT_THAT(env.jobs().Register(job), IsOk());
  for (uint64_t step = 1; step <= 2; ++step) {
    {
      Ring ring = MakeRing(env, 2, 4096);
      AllReduceOnce(ring, 100);
    }
    auto snapshot = env.core().GetSnapshot();
    while (snapshot.ok() && (snapshot->core.sessions > 0 || !snapshot->comms.empty())) {
      std::this_thread::yield();
      snapshot = env.core().GetSnapshot();
    }
    ASSERT_THAT(snapshot, IsOk());
    ASSERT_EQ(snapshot->jobs.size(), 1u);
    EXPECT_EQ(snapshot->jobs[0].id, job.id());
    EXPECT_EQ(snapshot->jobs[0].counters.ops, step);
  }
  ASSERT_THAT(env.jobs().End(job.number, job.uid), IsOk());
  ASSERT_THAT(env.core().EndJob(job.id()), IsOk());
  EXPECT_TRUE(env.core().GetSnapshot()->jobs.empty());
}

TEST(CoreTest, ARegisteredJobOwnsItsUsersSessionsAndEndsThem) {
  DaemonEnv env;
  const RegisteredJob job{.number = 77, .uid = ::getuid(), .cgroup = ""};
  auto stranger = RawClient::Open(env.socket_path());  // before the job was registered
  ASSERT_THAT(stranger, IsOk());
  ASSERT_THAT(env.jobs().Register(job), IsOk());
  auto ranks = FormComm(env.socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  ASSERT_THAT((*ranks)[0].client.Allocate(4096), IsOk());
  auto snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_EQ(snapshot->comms.size(), 1u);
  EXPECT_EQ(snapshot->comms[0].job_id, job.id());

  const auto ended = env.core().EndJob(job.id());
  ASSERT_THAT(ended, IsOk());
  EXPECT_EQ(ended->sessions, 2u);
  EXPECT_EQ(ended->communicators, 1u);
  EXPECT_EQ(ended->buffer_bytes, 4096u);
  const auto says_why =
      HasSubstr("job " + job.id() + " was ended by an operator or the batch system");
  for (auto& rank : *ranks) {
    const auto failed = rank.client.AwaitNotice(shm::ReplyType::kCommFailed);
    ASSERT_THAT(failed, IsOk());
    EXPECT_EQ(failed->result, static_cast<uint32_t>(shm::Result::kRemoteError));
    EXPECT_THAT(failed->message, says_why);
    const auto goodbye = rank.client.AwaitNotice(shm::ReplyType::kGoodbye);
    ASSERT_THAT(goodbye, IsOk());
    EXPECT_EQ(goodbye->result, static_cast<uint32_t>(shm::Result::kRemoteError));
    EXPECT_THAT(goodbye->message, says_why);
    EXPECT_TRUE(rank.client.AwaitHangup());
  }
  snapshot = env.core().GetSnapshot();
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(snapshot->core.sessions, 1u);  // the stranger's
  EXPECT_TRUE(snapshot->comms.empty());
  EXPECT_TRUE(snapshot->buffers.empty());
  EXPECT_THAT(stranger->Call(stranger->Make(shm::RequestType::kUniqueId)), IsOk());
}

TEST(CoreTest, TheSnapshotCounts) {
  DaemonEnv env;
  Ring ring = MakeRing(env, 2, 4096);
  AllReduceOnce(ring, 100);
  AllReduceOnce(ring, 200);
  ASSERT_TRUE(ring.ranks[0].client.Push(Slot(ring, 0, 10)));
  // The submission may still be on its way: wait until it is seen.
  absl::StatusOr<Snapshot> snapshot;
  do {
    snapshot = env.core().GetSnapshot();
    ASSERT_THAT(snapshot, IsOk());
  } while (snapshot->comms.at(0).queued_ops == 0);
  const CommInfo& comm = snapshot->comms[0];
  EXPECT_EQ(comm.state, "ready");
  EXPECT_EQ(comm.ranks, 2u);
  EXPECT_EQ(comm.running_algorithm, "local");
  EXPECT_EQ(comm.counters.ops, 2u);
  EXPECT_EQ(comm.counters.failed_ops, 0u);
  EXPECT_EQ(comm.counters.payload_bytes, 2u * 300 * sizeof(float));
  EXPECT_THAT(comm.members[0].phase, HasSubstr("waiting for rank 1 (pid "));
  EXPECT_EQ(comm.members[1].phase, "idle");
  ASSERT_EQ(snapshot->jobs.size(), 1u);
  EXPECT_EQ(snapshot->jobs[0].id, comm.job_id);
  EXPECT_EQ(snapshot->jobs[0].sessions, 2u);
  EXPECT_EQ(snapshot->jobs[0].communicators, 1u);
  EXPECT_EQ(snapshot->jobs[0].buffers, 2u);
  EXPECT_EQ(snapshot->jobs[0].buffer_bytes, 2u * 8192);
  EXPECT_EQ(snapshot->jobs[0].counters.ops, 2u);
  ASSERT_EQ(snapshot->buffers.size(), 2u);
  EXPECT_EQ(snapshot->buffers[0].kind, "mapped");
  EXPECT_GE(snapshot->buffers[0].uses, 4u);
  EXPECT_EQ(snapshot->core.sessions, 2u);
  EXPECT_EQ(snapshot->core.channels, 2u);
  EXPECT_EQ(snapshot->core.mapped_bytes, 2 * (8192 + sizeof(shm::Segment)));
  EXPECT_TRUE(snapshot->core.healthy);
  EXPECT_EQ(snapshot->core.boot_id, ring.ranks[0].client.boot_id());
}

TEST(CoreTest, TellsSubscribersWhatHappens) {
  DaemonEnv env;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> kinds;
  Ring ring = MakeRing(env, 1, 4096);
  const auto subscription = env.core().Subscribe(1, [&](const EventPtr& event) {
    std::lock_guard lock(mutex);
    kinds.push_back(event->kind);
    changed.notify_all();
  });
  ring.ranks.clear();
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return kinds.size() >= 4; }));
  EXPECT_THAT(kinds,
              ::testing::ElementsAre("session-open", "comm-ready", "session-closed", "comm-gone"));
}

}  // namespace
}  // namespace spccl::daemon
