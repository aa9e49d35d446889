// The worlds of several daemons in one process: fake GPUs, which all of them use, and the fake
// NCCL.
#include "daemon/gpu_worlds.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/spccl/v1/peer.pb.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/seed.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

namespace nccl = transport::nccl;

using nccl::RecordingSink;
using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::spccl::testing::TheGpus;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kGpus = spccl::testing::kFakeGpus;
constexpr size_t kBytes = 5000;

// One of the GPUs is an L4's size; read when the driver begins.
[[maybe_unused]] const int kOneIsSmall = ::setenv("SPCCL_FAKE_GPU_ATTRIBUTES", "2:16=58", 1);

void* Find(void* memory) {
  return spccl::testing::Fake().Here(reinterpret_cast<uint64_t>(memory));
}

// Daemons, each with a rank: daemon i has the boot id 10 + i, and is rank i. What they send each
// other comes by a thread of the receiver's.
class GpuWorldsTest : public ::testing::Test {
 protected:
  void Begin(size_t daemons, int64_t keep_ns = 60'000'000'000) {
    nccl::Fake().Reset({.seed = TestSeed()});
    ends_.resize(daemons);
    for (size_t i = 0; i < daemons; ++i) {
      ends_[i].worlds = std::make_unique<GpuWorlds>(GpuWorlds::Options{
          .gpus = &TheGpus(),
          .library = nccl::FakeLibrary(),
          .send =
              [this, i](NodeId node, const v1::PeerMessage& message) {
                ends_[node - 1].thread.Post([this, i, node, message] {
                  ends_[node - 1].worlds->OnControl(IdOf(i), message.nccl_control());
                });
              },
          .keep_ns = keep_ns});
    }
  }
  void TearDown() override {
    // What they say comes to nobody.
    for (End& end : ends_) end.thread.Finish();
    std::vector<std::thread> closing;
    for (End& end : ends_) closing.emplace_back([&end] { end.worlds.reset(); });
    for (std::thread& thread : closing) thread.join();
    EXPECT_EQ(nccl::Fake().live_communicators(), 0U);
    EXPECT_THAT(nccl::Fake().violations(), IsEmpty());
  }

  GpuWorlds& at(size_t daemon) { return *ends_[daemon].worlds; }
  // As the others name it.
  static NodeId IdOf(size_t daemon) { return daemon + 1; }

  std::vector<GpuOffering> Offers() {
    std::vector<GpuOffering> offers;
    for (size_t i = 0; i < ends_.size(); ++i) {
      offers.push_back({.name = "node", .boot_id = 10 + i, .offer = at(i).Offer()});
    }
    return offers;
  }
  uint64_t Generation() { return *AgreeOnWorld(Offers()); }

  // A communicator as one daemon opens it.
  absl::StatusOr<std::unique_ptr<GpuChannel>> Open(size_t daemon, uint64_t key,
                                                   uint64_t generation) {
    GpuWorldPlan plan{.generation = generation, .nodes = {}};
    std::vector<NodeId> node_of_rank;
    for (size_t i = 0; i < ends_.size(); ++i) {
      const NodeId id = i == daemon ? 0 : IdOf(i);
      node_of_rank.push_back(id);
      plan.nodes.push_back({.id = id, .boot_id = 10 + i, .gpus = kGpus});
    }
    return at(daemon).OpenChannel({1, key}, plan, node_of_rank);
  }
  std::vector<std::unique_ptr<GpuChannel>> OpenAll(uint64_t key) {
    const uint64_t generation = Generation();
    std::vector<std::unique_ptr<GpuChannel>> channels;
    for (size_t i = 0; i < ends_.size(); ++i) {
      auto channel = Open(i, key, generation);
      EXPECT_THAT(channel, IsOk());
      channels.push_back(channel.ok() ? *std::move(channel) : nullptr);
    }
    return channels;
  }

  // Of two daemons. Later generations are other worlds; those before stay as long as they have
  // channels.
  std::vector<std::vector<std::unique_ptr<GpuChannel>>> OpenGenerations(uint64_t count) {
    std::vector<std::vector<std::unique_ptr<GpuChannel>>> all(count);
    for (uint64_t generation = 1; generation <= count; ++generation) {
      for (size_t i = 0; i < 2; ++i) {
        all[generation - 1].push_back(*Open(i, generation, generation));
      }
    }
    return all;
  }

  struct End {
    std::unique_ptr<GpuWorlds> worlds;
    nccl::Worker thread;
  };
  std::deque<End> ends_;
};

transport::Frame MakeFrame(runtime::Gpu& gpu, uint64_t number) {
  std::promise<transport::Frame> made;
  gpu.Post([&] { made.set_value(*gpu.TakeFrame(kBytes)); });
  transport::Frame frame = made.get_future().get();
  auto* const data = static_cast<std::byte*>(Find(frame.data()));
  nccl::Fill(data, kBytes, number);
  frame.set_size_bytes(kBytes);
  std::memcpy(frame.header(), data, nccl::kHeadBytes);
  return frame;
}

bool Holds(const transport::Frame& frame, uint64_t number) {
  std::vector<std::byte> expected(kBytes);
  nccl::Fill(expected.data(), kBytes, number);
  return frame.size_bytes() == kBytes &&
         std::memcmp(Find(frame.data()), expected.data(), kBytes) == 0;
}

// One operation of all daemons; the lanes of daemon i are on GPU i.
struct Everywhere {
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<transport::Transport>> transports;

  Everywhere(const std::vector<std::unique_ptr<GpuChannel>>& channels, uint64_t sequence) {
    for (size_t i = 0; i < channels.size(); ++i) {
      runtime::Gpu* const rail = &TheGpus().at(i);
      auto opened = channels[i]->OpenOperation(sequence, /*plan=*/7, nccl::kLargest, {&rail, 1});
      EXPECT_THAT(opened, IsOk());
      sinks.push_back(std::make_unique<RecordingSink>());
      transports.push_back(*std::move(opened));
      transports.back()->Start(sinks.back().get());
    }
  }
  // From each to all others.
  void ExpectFramesPass() {
    const auto count = static_cast<uint32_t>(transports.size());
    for (uint32_t from = 0; from < count; ++from) {
      for (uint32_t to = 0; to < count; ++to) {
        if (to == from) continue;
        EXPECT_THAT(transports[from]->Send({.from = from, .to = to},
                                           MakeFrame(TheGpus().at(from), from * 100 + to)),
                    IsOk());
      }
    }
    for (uint32_t to = 0; to < count; ++to) {
      const auto arrived = sinks[to]->AwaitFrames(count - 1);
      ASSERT_EQ(arrived.size(), count - 1);
      for (const auto& one : arrived) {
        EXPECT_EQ(one.frame.gpu(), static_cast<int>(to));
        EXPECT_TRUE(Holds(one.frame, one.tag.from * 100 + to));
      }
    }
  }
};

TEST_F(GpuWorldsTest, FramesGoFromGpuToGpu) {
  Begin(3);
  const auto channels = OpenAll(1);
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    Everywhere operation(channels, sequence);
    operation.ExpectFramesPass();
  }
}

TEST_F(GpuWorldsTest, CommunicatorsOverTheSameNodesShareAWorld) {
  Begin(2);
  const auto first = OpenAll(1), second = OpenAll(2);
  Everywhere one(first, 1), other(second, 1);
  other.ExpectFramesPass();
  one.ExpectFramesPass();
  EXPECT_EQ(nccl::Fake().live_communicators(), 2 * kGpus);
  EXPECT_EQ(Generation(), 1U);
}

TEST_F(GpuWorldsTest, WithoutAnOperationNcclIsNotBegun) {
  Begin(2);
  const auto channels = OpenAll(1);
  EXPECT_EQ(nccl::Fake().live_communicators(), 0U);
}

TEST_F(GpuWorldsTest, AWorldThatHasFailedIsFollowedByAnother) {
  Begin(2);
  {
    const auto channels = OpenAll(1);
    Everywhere operation(channels, 1);
    operation.ExpectFramesPass();
    at(0).OnNodeDown(IdOf(1), absl::UnavailableError("cut off"));
    // Both hear of it.
    for (const auto& sink : operation.sinks) {
      EXPECT_THAT(sink->AwaitFailure().second,
                  FailsWith(absl::StatusCode::kAborted, HasSubstr("cut off")));
    }
    // Who was late hears that it is over.
    EXPECT_THAT(Open(0, 2, 1).status(),
                FailsWith(absl::StatusCode::kAborted, HasSubstr("try again")));
  }
  EXPECT_EQ(Generation(), 2U);
  const auto channels = OpenAll(3);
  Everywhere operation(channels, 1);
  operation.ExpectFramesPass();
}

// One has not heard of the failure, or has never been in the world: the later generation counts.
TEST_F(GpuWorldsTest, ALaterGenerationRetiresTheEarlier) {
  Begin(2);
  const auto old = Open(1, 1, 1);
  ASSERT_THAT(old, IsOk());
  at(0).OnControl(IdOf(1), v1::NcclControl());  // of no world
  std::vector<std::unique_ptr<GpuChannel>> channels;
  for (size_t i = 0; i < 2; ++i) channels.push_back(*Open(i, 2, 4));
  EXPECT_EQ(Generation(), 4U);
  Everywhere operation(channels, 1);
  operation.ExpectFramesPass();
}

TEST_F(GpuWorldsTest, AWorldThatNobodyUsesEnds) {
  Begin(2, /*keep_ns=*/0);
  {
    const auto channels = OpenAll(1);
    Everywhere operation(channels, 1);
    operation.ExpectFramesPass();
  }
  const int64_t until_ns = MonotonicNanos() + 20'000'000'000;
  while (Generation() == 1 && MonotonicNanos() < until_ns) std::this_thread::yield();
  EXPECT_EQ(Generation(), 2U);
}

// To make it again would take seconds, and fail the communicator that it was offered for.
TEST_F(GpuWorldsTest, AWorldThatWasOfferedStays) {
  Begin(2, /*keep_ns=*/1'000'000'000);
  OpenAll(1);
  uint64_t generation = 0;
  const int64_t until_ns = MonotonicNanos() + 2'000'000'000;
  while (MonotonicNanos() < until_ns) {
    generation = Generation();
    std::this_thread::yield();
  }
  EXPECT_EQ(generation, 1U);
  EXPECT_THAT(Open(0, 2, generation), IsOk());
}

// The connection went, and came again, as the communicator was opened: nobody has told the world.
TEST_F(GpuWorldsTest, AWorldOverAnotherConnectionIsNotUsedAgain) {
  Begin(2);
  OpenAll(1);
  const GpuWorldPlan plan{.generation = 1, .nodes = {{0, 10, kGpus}, {/*id=*/77, 11, kGpus}}};
  EXPECT_THAT(at(0).OpenChannel({1, 2}, plan, {0, 77}).status(),
              FailsWith(absl::StatusCode::kAborted, HasSubstr("try again")));
  EXPECT_EQ(Generation(), 2U);
}

TEST(MostGpuWorldsTest, AreAsManyAsFitOnAGpuAndFourAtMost) {
  EXPECT_EQ(MostGpuWorlds(148), 4U);  // B200
  EXPECT_EQ(MostGpuWorlds(58), 4U);   // L4
  EXPECT_EQ(MostGpuWorlds(48), 4U);
  EXPECT_EQ(MostGpuWorlds(47), 3U);
  EXPECT_EQ(MostGpuWorlds(14), 1U);  // 1g.5gb of an A100
  EXPECT_EQ(MostGpuWorlds(0), 1U);
}

TEST_F(GpuWorldsTest, NcclRunsInAsManyWorldsAsTheSmallestGpuHasRoomFor) {
  Begin(2);
  auto all = OpenGenerations(5);
  std::vector<std::unique_ptr<Everywhere>> operations;
  for (const size_t used : {0, 1, 2, 4}) {
    operations.push_back(std::make_unique<Everywhere>(all[used], 1));
    operations.back()->ExpectFramesPass();
  }
  runtime::Gpu* const rail = &TheGpus().at(0);
  EXPECT_THAT(all[3][0]->OpenOperation(1, 7, nccl::kLargest, {&rail, 1}).status(),
              FailsWith(absl::StatusCode::kResourceExhausted, HasSubstr("in 4 of NCCL's")));
  // The latest is kept for a while when nobody is in it, but not in others' way.
  operations.pop_back();
  all[4].clear();
  Everywhere(all[3], 1).ExpectFramesPass();
}

TEST_F(GpuWorldsTest, AWorldThatHasFailedIsInNobodysWay) {
  Begin(2);
  const auto all = OpenGenerations(4);
  std::vector<std::unique_ptr<Everywhere>> operations;
  for (const auto& channels : all) {
    operations.push_back(std::make_unique<Everywhere>(channels, 1));
    operations.back()->ExpectFramesPass();
  }
  for (size_t i = 0; i < 2; ++i) at(i).Abort(absl::UnavailableError("its daemon stops"));
  for (const auto& operation : operations) {
    for (const auto& sink : operation->sinks) sink->AwaitFailure();
  }
  // Nor do communicators that call once more take a place.
  runtime::Gpu* const rail = &TheGpus().at(0);
  for (const auto& channels : all) {
    EXPECT_THAT(channels[0]->OpenOperation(2, 7, nccl::kLargest, {&rail, 1}).status(),
                FailsWith(absl::StatusCode::kAborted, HasSubstr("its daemon stops")));
  }
  std::vector<std::unique_ptr<GpuChannel>> next;
  for (size_t i = 0; i < 2; ++i) next.push_back(*Open(i, 5, 5));
  Everywhere(next, 1).ExpectFramesPass();
}

TEST_F(GpuWorldsTest, AnAbortEndsAllOverIt) {
  Begin(2);
  const auto channels = OpenAll(1);
  Everywhere operation(channels, 1);
  operation.ExpectFramesPass();
  at(1).Abort(absl::UnavailableError("its daemon stops"));
  for (const auto& sink : operation.sinks) {
    EXPECT_THAT(sink->AwaitFailure().second,
                FailsWith(absl::StatusCode::kAborted, HasSubstr("its daemon stops")));
  }
}

TEST_F(GpuWorldsTest, AWorldWithOtherGpusOfThisNodeIsRefused) {
  Begin(2);
  GpuWorldPlan plan{.generation = 1, .nodes = {{0, 10, kGpus + 1}, {2, 11, kGpus}}};
  EXPECT_THAT(at(0).OpenChannel({1, 1}, plan, {0, 2}).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("5 GPUs of this node")));
}

}  // namespace
}  // namespace spccl::daemon
