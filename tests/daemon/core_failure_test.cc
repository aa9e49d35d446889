// What only broken clients do, what happens to the others, and what is left behind: nothing.
#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/core.h"
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
using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::kLargeCount;
using ::spccl::testing::RawBuffer;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Mappings of memfds; the allocator's own come and go.
size_t MappedMemfds() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:") != std::string::npos;
  }
  return count;
}

// A pair of ranks with a buffer each.
struct Pair {
  std::vector<RawRank> ranks;
  std::vector<RawBuffer> buffers;

  explicit Pair(DaemonEnv& env, uint32_t size = 2) {
    auto formed = FormComm(env.socket_path(), size);
    EXPECT_THAT(formed, IsOk());
    ranks = *std::move(formed);
    for (RawRank& rank : ranks) {
      auto buffer = rank.client.Allocate(2 * kLargeCount * sizeof(float));
      EXPECT_THAT(buffer, IsOk());
      buffers.push_back(*std::move(buffer));
    }
  }
  shm::Submission Slot(size_t rank, uint64_t count = 10) {
    return AllReduceSlot(ranks[rank], buffers[rank], count, 0, kLargeCount * sizeof(float));
  }
  void ExpectWorks() {
    for (size_t r = 0; r < ranks.size(); ++r) ASSERT_TRUE(ranks[r].client.Push(Slot(r)));
    for (RawRank& rank : ranks) {
      const auto completion = rank.client.AwaitCompletion();
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->result, 0u) << completion->message;
    }
  }
};

void ExpectEnd(RawRank& rank, shm::Result result, const ::testing::Matcher<std::string>& message) {
  const auto completion = rank.client.AwaitCompletion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->result, static_cast<uint32_t>(result)) << completion->message;
  EXPECT_THAT(std::string(shm::TextOf(completion->message)), message);
}

void ExpectRemoteError(RawRank& rank, const ::testing::Matcher<std::string>& message) {
  ExpectEnd(rank, shm::Result::kRemoteError, message);
}

struct Rubbish {
  std::string name;
  std::function<void(Pair&)> commit;  // as rank 0
};

std::vector<Rubbish> KindsOfRubbish() {
  std::vector<Rubbish> kinds;
  const auto slot = [](std::string name, std::function<void(shm::Submission&)> spoil) {
    return Rubbish{std::move(name), [spoil = std::move(spoil)](Pair& pair) {
                     shm::Submission bad = pair.Slot(0);
                     spoil(bad);
                     ASSERT_TRUE(pair.ranks[0].client.Push(bad));
                   }};
  };
  kinds.push_back(slot("reserved", [](auto& bad) { bad.reserved = 0xFF; }));
  kinds.push_back(slot("reserved2", [](auto& bad) { bad.reserved2 = ~0u; }));
  kinds.push_back(slot("reserved3", [](auto& bad) { bad.reserved3[4] = 1; }));
  kinds.push_back(slot("far sequence", [](auto& bad) { bad.sequence = ~0ull; }));
  kinds.push_back(slot("sequence ahead", [](auto& bad) { bad.sequence = 1 << 20; }));
  kinds.push_back({"replayed slot", [](Pair& pair) {
                     const shm::Submission slot = pair.Slot(0);
                     ASSERT_TRUE(pair.ranks[0].client.Push(slot));
                     ASSERT_TRUE(pair.ranks[0].client.Push(slot));
                   }});
  for (const uint32_t tail : {shm::kSubmissionCapacity + 1, 0x80000000u, ~0u}) {
    kinds.push_back({"tail " + std::to_string(tail), [tail](Pair& pair) {
                       pair.ranks[0].client.segment()->submission_control.tail.store(tail);
                       pair.ranks[0].client.Ring();
                     }});
  }
  for (const uint32_t head : {1u, 0x80000000u, ~shm::kCompletionCapacity}) {
    kinds.push_back({"completion head " + std::to_string(head), [head](Pair& pair) {
                       pair.ranks[0].client.segment()->completion_control.head.store(head);
                       ASSERT_TRUE(pair.ranks[0].client.Push(pair.Slot(0)));
                     }});
  }
  kinds.push_back({"a whole ring of 0xFF", [](Pair& pair) {
                     shm::Segment* const segment = pair.ranks[0].client.segment();
                     std::memset(static_cast<void*>(segment), 0xFF, sizeof *segment);
                     pair.ranks[0].client.Ring();
                   }});
  kinds.push_back({"over the completion capacity", [](Pair& pair) {
                     for (uint32_t i = 0; i <= shm::kCompletionCapacity; ++i) {
                       // The ring is full for as long as the daemon has not looked.
                       const shm::Submission slot = pair.Slot(0);
                       const int64_t deadline = MonotonicNanos() + 10'000'000'000;
                       while (!pair.ranks[0].client.Push(slot)) {
                         ASSERT_LT(MonotonicNanos(), deadline);
                       }
                     }
                   }});
  return kinds;
}

TEST(RubbishTest, EndsTheSessionThatWroteItAndNoOther) {
  DaemonEnv env;
  Pair bystanders(env);
  for (const Rubbish& rubbish : KindsOfRubbish()) {
    SCOPED_TRACE(rubbish.name);
    Pair pair(env);
    // Operation 1 waits for operation 0, which this rank does not call.
    pair.ranks[1].next_sequence = 1;
    ASSERT_TRUE(pair.ranks[1].client.Push(pair.Slot(1)));
    rubbish.commit(pair);
    EXPECT_TRUE(pair.ranks[0].client.AwaitHangup());
    ExpectRemoteError(pair.ranks[1],
                      AllOf(HasSubstr("rank 0 (pid "), HasSubstr("broke the protocol")));
    bystanders.ExpectWorks();
  }
}

// Each field of a slot at its extremes, alone: an error or the end of the session, never more.
TEST(RubbishTest, EveryFieldAtItsExtremes) {
  DaemonEnv env;
  Pair bystanders(env);
  auto pair = std::make_unique<Pair>(env, 1);
  for (size_t offset = 8; offset < sizeof(shm::Submission); offset += 4) {
    for (const uint32_t value : {0u, 1u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
      shm::Submission slot = pair->Slot(0);
      std::memcpy(reinterpret_cast<char*>(&slot) + offset, &value, sizeof value);
      ASSERT_TRUE(pair->ranks[0].client.Push(slot));
      // Either it completes, well or with an error, or the session ends.
      while (true) {
        if (pair->ranks[0].client.AwaitCompletion(/*timeout_ms=*/2)) break;
        if (pair->ranks[0].client.AwaitHangup(/*timeout_ms=*/2)) {
          pair = std::make_unique<Pair>(env, 1);
          break;
        }
        // A sequence that is ahead but in the window waits for those before it.
        const auto snapshot = env.core().GetSnapshot();
        ASSERT_THAT(snapshot, IsOk());
        bool waits = false;
        for (const CommInfo& comm : snapshot->comms) waits |= comm.queued_ops != 0;
        if (waits) {
          pair = std::make_unique<Pair>(env, 1);
          break;
        }
      }
    }
  }
  bystanders.ExpectWorks();
}

TEST(RubbishTest, ARingWithoutAPushIsHarmless) {
  DaemonEnv env;
  Pair pair(env);
  for (int i = 0; i < 100; ++i) pair.ranks[0].client.Ring();
  // The client shares the open eventfd: it may empty it, or make it block.
  uint64_t value;
  ASSERT_EQ(::read(pair.ranks[0].client.doorbell(), &value, sizeof value), 8);
  pair.ExpectWorks();
}

TEST(FullRingTest, ADaemonThatIsHeldUpLosesNothing) {
  const auto gate = std::make_shared<Gate>();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  Pair pair(env, 1);
  for (uint32_t i = 0; i < shm::kCompletionCapacity; ++i) {
    const shm::Submission slot = pair.Slot(0, kLargeCount);
    const int64_t deadline = MonotonicNanos() + 10'000'000'000;
    while (!pair.ranks[0].client.Push(slot)) ASSERT_LT(MonotonicNanos(), deadline);
  }
  ASSERT_TRUE(gate->AwaitEntered(1));
  gate->Open();
  for (uint32_t i = 0; i < shm::kCompletionCapacity; ++i) {
    const auto completion = pair.ranks[0].client.AwaitCompletion();
    ASSERT_TRUE(completion.has_value()) << i;
    EXPECT_EQ(completion->result, 0u);
    EXPECT_EQ(completion->ticket, i + 1);
  }
  pair.ExpectWorks();
}

TEST(DeathTest, TheRanksThatWaitAreToldWhoHasGone) {
  DaemonEnv env;
  Pair pair(env, 3);
  for (const size_t r : {0u, 2u}) ASSERT_TRUE(pair.ranks[r].client.Push(pair.Slot(r)));
  { const RawRank gone = std::move(pair.ranks[1]); }
  const auto is_told = AllOf(HasSubstr("rank 1 (pid "), HasSubstr("has closed its session"));
  for (const size_t r : {0u, 2u}) ExpectRemoteError(pair.ranks[r], is_told);
}

TEST(DeathTest, TheMemoryStaysUntilTheRunningSliceHasEnded) {
  const auto gate = std::make_shared<Gate>();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  auto pair = std::make_unique<Pair>(env);
  for (const size_t r : {0u, 1u}) {
    ASSERT_TRUE(pair->ranks[r].client.Push(pair->Slot(r, kLargeCount)));
  }
  ASSERT_TRUE(gate->AwaitEntered(1));
  pair.reset();
  // Sessions are gone; the operation in the middle still holds its memory.
  while (env.core().GetSnapshot()->core.sessions != 0) ::poll(nullptr, 0, 1);
  EXPECT_EQ(env.core().mappings(), 4u);  // two buffers, two segments
  EXPECT_EQ(env.core().GetSnapshot()->comms.size(), 1u);
  gate->Open();
  const int64_t deadline = MonotonicNanos() + 10'000'000'000;
  while (env.core().mappings() != 0 && MonotonicNanos() < deadline) ::poll(nullptr, 0, 1);
  EXPECT_EQ(env.core().mappings(), 0u);
  EXPECT_TRUE(env.core().GetSnapshot()->comms.empty());
  EXPECT_TRUE(env.core().GetSnapshot()->jobs.empty());
}

TEST(LeakTest, AThousandSessionsLeaveNothing) {
  DaemonEnv env;
  { Pair warm_up(env); }
  const auto settle = [&env] {
    while (env.core().mappings() != 0) ::poll(nullptr, 0, 1);
    // The core has closed a session's descriptors, too, once it answers.
    EXPECT_THAT(env.core().GetSnapshot(), IsOk());
  };
  settle();
  const size_t descriptors = OpenDescriptors(), memfds = MappedMemfds();
  for (int i = 0; i < 500; ++i) {
    Pair pair(env);  // two sessions
    // Some die in the middle of an operation, or while one waits.
    for (int r = 0; r < i % 3; ++r) {
      ASSERT_TRUE(pair.ranks[r].client.Push(pair.Slot(r, kLargeCount)));
    }
  }
  settle();
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(MappedMemfds(), memfds);
  const auto snapshot = env.core().GetSnapshot();
  EXPECT_EQ(snapshot->core.sessions, 0u);
  EXPECT_EQ(snapshot->core.mapped_bytes, 0u);
  EXPECT_TRUE(snapshot->comms.empty());
  EXPECT_TRUE(snapshot->jobs.empty());
}

TEST(StopTest, RunningOperationsEndAndTheRestIsTold) {
  const auto gate = std::make_shared<Gate>();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  Pair running(env), waiting(env);
  for (const size_t r : {0u, 1u}) {
    ASSERT_TRUE(running.ranks[r].client.Push(running.Slot(r, kLargeCount)));
  }
  ASSERT_TRUE(gate->AwaitEntered(1));
  ASSERT_TRUE(waiting.ranks[0].client.Push(waiting.Slot(0)));
  while (env.core().GetSnapshot()->comms.at(1).queued_ops +
             env.core().GetSnapshot()->comms.at(0).queued_ops ==
         0) {
    ::poll(nullptr, 0, 1);
  }
  env.core().BeginStop();
  ExpectEnd(waiting.ranks[0], shm::Result::kSystemError, HasSubstr("stopping"));
  EXPECT_THAT(running.ranks[0].client.AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_FALSE(RawClient::Connect(env.socket_path()).ok());
  EXPECT_FALSE(env.core().WaitStopped(0));
  gate->Open();
  for (RawRank& rank : running.ranks) {
    const auto done = rank.client.AwaitCompletion();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->result, 0u) << done->message;
    EXPECT_TRUE(rank.client.AwaitHangup());
  }
  EXPECT_TRUE(env.core().WaitStopped(10'000'000'000));
  EXPECT_FALSE(env.core().GetSnapshot().ok());
}

// One that has left by the stop of its other communicators, say.
TEST(StopTest, ARankThatLeavesMeanwhileIsNotTheCause) {
  const auto gate = std::make_shared<Gate>();
  const CoreHooks hooks = GateHooks(gate);
  DaemonEnv env({}, &hooks);
  Pair pair(env);
  for (const size_t r : {0u, 1u}) {
    ASSERT_TRUE(pair.ranks[r].client.Push(pair.Slot(r, kLargeCount)));
  }
  ASSERT_TRUE(gate->AwaitEntered(1));
  env.core().BeginStop();
  EXPECT_THAT(pair.ranks[0].client.AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  pair.ranks.pop_back();
  EXPECT_THAT(pair.ranks[0].client.AwaitNotice(shm::ReplyType::kCommFailed), IsOk());
  EXPECT_THAT(env.core().GetSnapshot(), IsOk());  // after the notice it cancels what runs
  gate->Open();
  const auto is_told =
      AllOf(HasSubstr("spccld is stopping: rank 1 (pid "), HasSubstr("has closed its session"));
  ExpectEnd(pair.ranks[0], shm::Result::kSystemError, is_told);
  EXPECT_TRUE(env.core().WaitStopped(10'000'000'000));
}

TEST(StopTest, WhatDoesNotEndInTimeIsCancelled) {
  // A task that never ends by itself, and whose cancellation ends it at once.
  class Endless final : public runtime::Task {
   public:
    explicit Endless(runtime::DoneFn done) : done_(std::move(done)) {}
    runtime::Progress RunOne(runtime::Scratch) override { return runtime::Progress::kIdle; }
    void Cancel(absl::Status reason, int culprit_rank) override {
      runtime::OpResult result;
      result.status = std::move(reason);
      result.culprit_rank = culprit_rank;
      done_(result);
    }

   private:
    const runtime::DoneFn done_;
  };
  CoreHooks hooks = GateHooks(std::make_shared<Gate>());
  hooks.make_task = [](const OpDesc&, std::span<const runtime::RankBuffers>,
                       const policy::Settings&,
                       runtime::DoneFn done) -> absl::StatusOr<std::unique_ptr<runtime::Task>> {
    return std::make_unique<Endless>(std::move(done));
  };
  CoreOptions options;
  options.stop_timeout_ns = 50'000'000;
  DaemonEnv env(options, &hooks);
  Pair pair(env, 1);
  ASSERT_TRUE(pair.ranks[0].client.Push(pair.Slot(0)));
  while (env.core().GetSnapshot()->comms.at(0).members.at(0).phase != "running") {
    ::poll(nullptr, 0, 1);
  }
  env.core().BeginStop();
  const auto completion = pair.ranks[0].client.AwaitCompletion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_THAT(std::string(shm::TextOf(completion->message)), HasSubstr("stopping"));
  EXPECT_TRUE(env.core().WaitStopped(10'000'000'000));
}

TEST(AdmissionTest, AClientThatIsTurnedAwayForLackOfDescriptorsIsLoggedAsThat) {
  DaemonEnv env;
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // Room for the client's end and the daemon's, and none for what tells of the client's end.
  int highest = 2;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    highest = std::max(highest, std::stoi(entry.path().filename()));
  }
  ::testing::internal::CaptureStderr();  // opens a file, and is therefore first
  std::vector<UniqueFd> filled;
  do {
    filled.emplace_back(::dup(0));
    ASSERT_TRUE(filled.back().valid());
  } while (filled.back().get() <= highest + 2);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(filled.back().get()) + 3,
                   .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  auto client = RawClient::Connect(env.socket_path());
  const bool hung_up = client.ok() && client->AwaitHangup();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(client, IsOk());
  EXPECT_TRUE(hung_up);
  EXPECT_THAT(log, HasSubstr(" warning session: out of file descriptors (RLIMIT_NOFILE)"));
  EXPECT_THAT(RawClient::Open(env.socket_path()), IsOk());
}

}  // namespace
}  // namespace spccl::daemon
