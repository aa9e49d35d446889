// What a world does when NCCL, a GPU, a node or its word fails: everybody is told whose loss it is,
// nothing hangs, and nothing is left.
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "tests/collective/transport/nccl/running.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

TEST(NcclWorldFailureTest, InitThatNeverEndsIsGivenUp) {
  Cluster cluster({0, 1, 1}, TestSeed(), [](WorldOptions* options) {
    Fake().HoldInit(true);
    options->init_deadline_ns = 2'000'000'000;  // in which the root names the world
  });
  for (auto& events : cluster.events) {
    ASSERT_TRUE(events.failed.Await());
    EXPECT_THAT(Text(events.reason), HasSubstr("initialising NCCL: not all 3 ranks came together"));
  }
  EXPECT_FALSE(cluster.worlds[0]->up());
  EXPECT_FALSE(cluster.worlds[0]->OpenCommunicator({1, 1}, {0, 1, 2}).ok());
}

TEST(NcclWorldFailureTest, ARootThatNeverNamesTheWorldIsGivenUp) {
  Cluster cluster(
      {0, 1}, TestSeed(), [](WorldOptions* options) { options->init_deadline_ns = kSoonNs; },
      [](uint32_t from, uint32_t, std::string bytes) {
        return from == 0 ? std::vector<std::string>{} : std::vector{std::move(bytes)};
      });
  ASSERT_TRUE(cluster.events[1].failed.Await());
  EXPECT_EQ(cluster.events[1].rank, 0U);
  EXPECT_THAT(Text(cluster.events[1].reason), HasSubstr("did not name the world"));
  ASSERT_TRUE(cluster.events[0].failed.Await());
}

TEST(NcclWorldFailureTest, InitThatFailsIsTold) {
  Cluster cluster({0, 1, 2}, TestSeed(), [](WorldOptions* options) {
    Fake().HoldInit(true);
    Fake().FailRank(2, kSystemError);
    options->init_deadline_ns = kNeverNs;
  });
  for (auto& events : cluster.events) {
    ASSERT_TRUE(events.failed.Await());
    EXPECT_EQ(events.rank, 2U);
    EXPECT_THAT(Text(events.reason), HasSubstr("unhandled system error"));
  }
}

TEST(NcclWorldFailureTest, FramesThatWaitForAWorldThatFailsAreGone) {
  Cluster cluster({0, 1}, TestSeed(), [](WorldOptions* options) {
    Fake().HoldInit(true);
    options->init_deadline_ns = kSoonNs;
  });
  Running running(&cluster);
  EXPECT_TRUE(running.transports[0]
                  ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                  .ok());
  for (const auto& sink : running.sinks) {
    EXPECT_THAT(Text(sink->AwaitFailure().second), HasSubstr("initialising NCCL"));
  }
}

TEST(NcclWorldFailureTest, AnErrorOfOneRankIsEverybodysAndNamesIt) {
  Cluster cluster({0, 1, 2, 2}, TestSeed());
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  Fake().FailRank(3, kUnhandledCudaError);
  running.ExpectLost(3, "unhandled cuda error");
  // Told after the sinks have returned; until they have, Send takes what there is.
  ASSERT_TRUE(cluster.events[0].failed.Await());
  EXPECT_FALSE(running.transports[0]
                   ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                   .ok());
  EXPECT_FALSE(running.communicators[1]->OpenOperation(Operation(2)).ok());
}

TEST(NcclWorldFailureTest, AGpuThatStandsStillIsFoundByTheDeadline) {
  Cluster cluster({0, 1, 2}, TestSeed(),
                  [](WorldOptions* options) { options->group_deadline_ns = kSoonNs; });
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  Fake().StallRank(1);
  EXPECT_TRUE(running.transports[0]
                  ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                  .ok());
  for (const auto& sink : running.sinks) {
    const auto [rank, reason] = sink->AwaitFailure();
    EXPECT_THAT(rank, AnyOf(Eq(0U), Eq(1U)));  // whoever says so first
    EXPECT_THAT(Text(reason), HasSubstr("running group 1 with rank"));
  }
}

TEST(NcclWorldFailureTest, ANodeThatIsGoneTakesTheWorldWithIt) {
  Cluster cluster({0, 1, 1, 2}, TestSeed(), CloseSoon);
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  Fake().StallRank(1);
  Fake().StallRank(2);
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(running.transports[0]
                    ->Send({.from = 0, .to = 1 + i % 3, .lane = i},
                           MakeFrame(cluster.gpus[0].get(), 1000, i))
                    .ok());
  }
  cluster.net.Cut(1);
  cluster.worlds[0]->OnNodeDown(1, absl::UnavailableError("no heartbeat"));
  for (const uint32_t node : {0U, 2U}) {
    const auto [rank, reason] = running.sinks[node]->AwaitFailure();
    EXPECT_EQ(rank, 1U);
    EXPECT_THAT(Text(reason), HasSubstr("no heartbeat"));
  }
  cluster.worlds[1]->OnNodeDown(0, absl::UnavailableError("cut off"));
  EXPECT_EQ(running.sinks[1]->AwaitFailure().first, 0U);
}

TEST(NcclWorldFailureTest, WithoutMemoryOnlyTheOperationFails) {
  Cluster cluster({0, 1}, TestSeed());
  ASSERT_TRUE(cluster.AwaitUp());
  {
    Running running(&cluster);
    cluster.gpus[1]->SetFull(true);
    EXPECT_TRUE(running.transports[0]
                    ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                    .ok());
    const auto [rank, reason] = running.sinks[1]->AwaitFailure();
    EXPECT_EQ(rank, 1U);
    EXPECT_EQ(reason.code(), absl::StatusCode::kResourceExhausted);
  }
  cluster.gpus[1]->SetFull(false);
  EXPECT_TRUE(cluster.worlds[0]->status().ok());
  EXPECT_TRUE(cluster.worlds[1]->status().ok());
}

// Changes the messages of a kind that node 1 sends.
TestNet::Tamper Changing(MessageKind kind, std::function<void(Message*)> change) {
  return [=](uint32_t from, uint32_t, std::string bytes) {
    Message message = *ParseMessage(bytes);
    if (from != 1 || message.kind != kind) return std::vector{std::move(bytes)};
    change(&message);
    return std::vector{FormatMessage(message)};
  };
}

// A frame from rank 1, whose node lies, to rank 0, and one back.
void ExpectLieFound(const TestNet::Tamper& tamper, const std::string& why, uint32_t blamed = 1,
                    uint32_t root = 0) {
  Cluster cluster(
      {0, 1}, TestSeed(), [root](WorldOptions* options) { options->root = root; }, tamper);
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  for (const uint32_t from : {1U, 0U}) {
    running.transports[from]
        ->Send({.from = from, .to = 1 - from}, MakeFrame(cluster.gpus[from].get(), 1000, 1))
        .IgnoreError();  // it may be found by now
  }
  running.ExpectLost(blamed, why);
  // It is found before NCCL has to do with it.
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST(NcclWorldFailureTest, LyingSizesAreFound) {
  ExpectLieFound(Changing(MessageKind::kAnnounce,
                          [](Message* message) { message->frames[0].bytes = 32U << 20; }),
                 "of 33554432 bytes; 16777216 is the most");
  ExpectLieFound(
      Changing(MessageKind::kAnnounce, [](Message* message) { message->frames[0].bytes = 999; }),
      "was not offered so", 0);  // rank 1 calls rank 0 the liar, which said what it was told
  ExpectLieFound(
      Changing(MessageKind::kGroup, [](Message* message) { message->transfers[0].bytes = 999; }),
      "(frame", 1, 1);
}

// Here it is one's word against the other's: the sender finds that the receiver takes another size,
// and the receiver, whose word was changed on its way, that the root has it wrong.
TEST(NcclWorldFailureTest, ALyingReceiverIsFound) {
  Cluster cluster({0, 1}, TestSeed(), {}, Changing(MessageKind::kReady, [](Message* message) {
                    message->transfers[0].bytes = 999;
                  }));
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  EXPECT_TRUE(running.transports[0]
                  ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                  .ok());
  for (const auto& sink : running.sinks) {
    EXPECT_THAT(Text(sink->AwaitFailure().second), HasSubstr("frame 1 of 999 bytes"));
  }
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST(NcclWorldFailureTest, OtherLiesAreFound) {
  ExpectLieFound(
      Changing(MessageKind::kAnnounce, [](Message* message) { message->frames[0].tag.from = 0; }),
      "not its to send");
  ExpectLieFound(Changing(MessageKind::kAnnounce,
                          [](Message* message) { message->frames.push_back(message->frames[0]); }),
                 "another has");
  ExpectLieFound(
      Changing(MessageKind::kReady, [](Message* message) { message->transfers[0].to = 0; }),
      "it is ready for a frame");
  ExpectLieFound(Changing(MessageKind::kDone, [](Message* message) { message->group = 99; }),
                 "in which it has no part");
  ExpectLieFound(
      Changing(MessageKind::kOpen,
               [](Message* message) { *message = {.kind = MessageKind::kGroup, .group = 1}; }),
      "is no root");
  ExpectLieFound(Changing(MessageKind::kOpen,
                          [](Message* message) { *message = {.kind = MessageKind::kUniqueId}; }),
                 "names the world");
}

TEST(NcclWorldFailureTest, RubbishIsFound) {
  ExpectLieFound(
      [](uint32_t from, uint32_t, std::string bytes) {
        if (from == 1 && ParseMessage(bytes)->kind == MessageKind::kOpen) bytes.resize(5);
        return std::vector{std::move(bytes)};
      },
      "malformed");
}

// A root whose word about two groups is changed on its way to one node: it then issues them in
// another order than the other node. NCCL would hang.
TEST(NcclWorldFailureTest, GroupsInDifferentOrdersAreADeadlockWhichTheFakeReports) {
  std::vector<std::string> held;  // guarded by the net
  Event first_came;
  Cluster cluster({0, 1}, TestSeed(), {}, [&](uint32_t from, uint32_t, std::string bytes) {
    if (ParseMessage(bytes)->kind != MessageKind::kGroup) return std::vector{std::move(bytes)};
    held.push_back(std::move(bytes));
    if (held.size() == 1) {
      first_came.Set();
      return std::vector<std::string>{};
    }
    Message one = *ParseMessage(held[0]), two = *ParseMessage(held[1]);
    std::swap(one.transfers, two.transfers);
    return std::vector{FormatMessage(one), FormatMessage(two)};
  });
  ASSERT_TRUE(cluster.AwaitUp());
  Running running(&cluster);
  EXPECT_TRUE(running.transports[0]
                  ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 1))
                  .ok());
  ASSERT_TRUE(first_came.Await());
  EXPECT_TRUE(running.transports[1]
                  ->Send({.from = 1, .to = 0}, MakeFrame(cluster.gpus[1].get(), 1000, 1))
                  .ok());
  for (const auto& sink : running.sinks) {
    EXPECT_THAT(Text(sink->AwaitFailure().second), HasSubstr("internal error"));
  }
  const auto violations = Fake().violations();
  ASSERT_FALSE(violations.empty());
  EXPECT_THAT(violations[0], HasSubstr("deadlock"));
}

TEST(NcclWorldFailureTest, AStuckIssuingThreadDoesNotKeepTheWorldFromEnding) {
  Cluster cluster({0, 1}, TestSeed(), CloseSoon);
  ASSERT_TRUE(cluster.AwaitUp());
  Event go_on;
  cluster.gpus[0]->Post([&] { go_on.Await(); });
  cluster.net.Stop();
  cluster.worlds[1].reset();
  cluster.worlds[0].reset();
  go_on.Set();
  for (const auto& gpu : cluster.gpus) gpu->Flush();
  EXPECT_EQ(Fake().live_communicators(), 0U);
}

// Something breaks while frames are on their way; whatever it is, everybody gets to an end.
TEST(NcclWorldFailureTest, RandomFailuresInTheMiddle) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const uint32_t ranks = 2 + random() % 5;
    const uint32_t nodes = 1 + random() % ranks;
    std::vector<uint32_t> layout;
    for (uint32_t rank = 0; rank < ranks; ++rank) layout.push_back(rank % nodes);
    Cluster cluster(layout, random(), [](WorldOptions* options) {
      options->group_deadline_ns = kSoonNs;
      options->close_deadline_ns = kSoonNs;
      options->window_bytes = 50000;
    });
    Running running(&cluster);
    const uint64_t how = random() % 3;
    const uint32_t victim = random() % ranks;
    const uint64_t when = random() % 300;
    std::atomic<uint64_t> sent{0};
    std::vector<std::thread> threads;
    for (uint32_t from = 0; from < ranks; ++from) {
      threads.emplace_back([&, from, seed = random()] {
        std::mt19937_64 dice(seed);
        OperationTransport& transport = *running.transports[layout[from]];
        for (uint32_t i = 0; i < 100; ++i) {
          if (sent.fetch_add(1) == when) {
            if (how == 0) Fake().FailRank(static_cast<int>(victim), kInternalError);
            if (how == 1) Fake().StallRank(static_cast<int>(victim));
            if (how == 2) {
              for (uint32_t node = 0; node < nodes; ++node) {
                cluster.worlds[node]->OnNodeDown(layout[victim], absl::UnavailableError("gone"));
              }
            }
          }
          const uint32_t to = (from + 1 + dice() % (ranks - 1)) % ranks;
          Frame frame = MakeFrame(cluster.gpus[from].get(), dice() % 20000, i);
          if (!transport.Send({.from = from, .to = to, .lane = i}, std::move(frame)).ok()) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // A GPU that stands still is only missed by who is on the way to it, and a node is never its
    // own loss.
    if (sent > when && how != 1 && !(how == 2 && nodes == 1)) {
      for (const auto& sink : running.sinks) {
        EXPECT_THAT(Text(sink->AwaitFailure().second), HasSubstr("lost GPU rank"));
      }
    }
    running.transports.clear();
    running.sinks.clear();
    running.communicators.clear();
    cluster.Close();
    ASSERT_THAT(Fake().violations(), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace spccl::transport::nccl
