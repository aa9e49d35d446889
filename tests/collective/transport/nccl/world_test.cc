#include "collective/transport/nccl/world.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

// One operation on all nodes of a cluster.
struct Everywhere {
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<std::unique_ptr<OperationTransport>> transports;

  Everywhere(const std::vector<std::unique_ptr<Communicator>>& communicators, uint64_t sequence) {
    for (const auto& communicator : communicators) {
      auto opened = communicator->OpenOperation(Operation(sequence));
      EXPECT_TRUE(opened.ok()) << opened.status();
      sinks.push_back(std::make_unique<RecordingSink>());
      transports.push_back(*std::move(opened));
      transports.back()->Start(sinks.back().get());
    }
  }
};

TEST(NcclWorldTest, ComesUp) {
  for (const std::vector<uint32_t>& layout : std::vector<std::vector<uint32_t>>{
           {0}, {0, 1}, {0, 0, 1, 1}, {1, 0, 2, 0}, {0, 0, 0, 0, 1, 1, 1, 1}}) {
    Cluster cluster(layout, TestSeed());
    EXPECT_TRUE(cluster.AwaitUp());
    for (const auto& world : cluster.worlds) EXPECT_TRUE(world->up() && world->status().ok());
    cluster.Close();
    EXPECT_THAT(Fake().violations(), testing::IsEmpty());
  }
}

TEST(NcclWorldTest, MovesFramesOfAllSizes) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  {
    Everywhere operation(communicators, 1);
    const std::vector<size_t> sizes = {0, 1, 47, 48, 4096, 1U << 20, kLargest};
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(operation.transports[0]
                      ->Send({.from = 0, .to = 1, .lane = 3, .chunk = static_cast<uint32_t>(i)},
                             MakeFrame(cluster.gpus[0].get(), sizes[i], i))
                      .ok());
    }
    const auto arrived = operation.sinks[1]->AwaitFrames(sizes.size());
    ASSERT_EQ(arrived.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(arrived[i].tag.chunk, i);
      EXPECT_EQ(arrived[i].tag.lane, 3U);
      EXPECT_TRUE(Holds(arrived[i].frame, sizes[i], i)) << sizes[i];
    }
  }
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST(NcclWorldTest, WhatIsReadyTogetherGoesTogether) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  {
    Everywhere operation(communicators, 1);
    for (uint32_t i = 0; i < 200; ++i) {
      EXPECT_TRUE(
          operation.transports[0]
              ->Send({.from = 0, .to = 1, .lane = i}, MakeFrame(cluster.gpus[0].get(), 1000, i))
              .ok());
    }
    EXPECT_EQ(operation.sinks[1]->AwaitFrames(200).size(), 200U);
  }
  EXPECT_EQ(Fake().sends(), 200U);
  EXPECT_GT(Fake().most_sends_a_group(), 1U);
  EXPECT_LE(Fake().most_sends_a_group(), 32U);
}

TEST(NcclWorldTest, WhatWasSentArrivesThoughTheSenderHasStoppedAndClosed) {
  Cluster cluster({0, 1}, TestSeed());
  auto communicators = cluster.OpenAll(1);
  {
    auto opened = communicators[0]->OpenOperation(Operation(1));
    ASSERT_TRUE(opened.ok());
    RecordingSink sink;
    (*opened)->Start(&sink);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(
          (*opened)
              ->Send({.from = 0, .to = 1, .chunk = i}, MakeFrame(cluster.gpus[0].get(), 5000, i))
              .ok());
    }
  }
  communicators[0].reset();
  {
    auto opened = communicators[1]->OpenOperation(Operation(1));
    ASSERT_TRUE(opened.ok());
    RecordingSink sink;
    (*opened)->Start(&sink);
    const auto arrived = sink.AwaitFrames(3);
    ASSERT_EQ(arrived.size(), 3U);
    EXPECT_TRUE(Holds(arrived[2].frame, 5000, 2));
  }
}

TEST(NcclWorldTest, WhoClosesWithoutOpeningLetsTheSenderGo) {
  Cluster cluster({0, 1}, TestSeed());
  auto communicators = cluster.OpenAll(1);
  {
    auto opened = communicators[0]->OpenOperation(Operation(1));
    ASSERT_TRUE(opened.ok());
    RecordingSink sink;
    (*opened)->Start(&sink);
    EXPECT_TRUE(
        (*opened)->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 5000, 1)).ok());
    EXPECT_EQ(cluster.gpus[0]->frames_out(), 1U);
    communicators[1].reset();
    (*opened)->Stop();
  }
  communicators[0].reset();
  // The same key is free again once the frame is gone.
  absl::Status again = absl::UnknownError("never");
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!again.ok() && std::chrono::steady_clock::now() < deadline) {
    again = cluster.worlds[0]->OpenCommunicator({1, 1}, {0, 1}).status();
    std::this_thread::yield();
  }
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(cluster.gpus[0]->frames_out(), 0U);
}

TEST(NcclWorldTest, WhoStopsDeclinesWhatIsAnnounced) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  {
    Everywhere operation(communicators, 1);
    operation.transports[1]->Stop();
    for (uint32_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(
          operation.transports[0]
              ->Send({.from = 0, .to = 1, .lane = i}, MakeFrame(cluster.gpus[0].get(), 1000, i))
              .ok());
    }
  }
  // The next operation is not disturbed.
  Everywhere operation(communicators, 2);
  EXPECT_TRUE(operation.transports[0]
                  ->Send({.from = 0, .to = 1}, MakeFrame(cluster.gpus[0].get(), 1000, 5))
                  .ok());
  EXPECT_EQ(operation.sinks[1]->AwaitFrames(1).size(), 1U);
}

TEST(NcclWorldTest, SaysWhenThereIsRoom) {
  Cluster cluster({0, 1}, TestSeed(),
                  [](WorldOptions* options) { options->window_bytes = 100000; });
  const auto communicators = cluster.OpenAll(1);
  {
    auto opened = communicators[0]->OpenOperation(Operation(1));
    ASSERT_TRUE(opened.ok());
    RecordingSink sink;
    (*opened)->Start(&sink);
    uint32_t sent = 0;
    while ((*opened)->HasRoom(1)) {
      ASSERT_LT(sent, 100U);
      EXPECT_TRUE((*opened)
                      ->Send({.from = 0, .to = 1, .chunk = sent},
                             MakeFrame(cluster.gpus[0].get(), 10000, sent))
                      .ok());
      ++sent;
    }
    EXPECT_GE(sent, 7U);
    auto receiver = communicators[1]->OpenOperation(Operation(1));
    ASSERT_TRUE(receiver.ok());
    RecordingSink receiving;
    (*receiver)->Start(&receiving);
    EXPECT_TRUE(sink.AwaitRoom());
    EXPECT_TRUE((*opened)->HasRoom(1));
    EXPECT_EQ(receiving.AwaitFrames(sent).size(), sent);
  }
}

// A ring: each rank sends its own frame to the next, then what it got, and so on; all sizes are
// told at the beginning, far more of them than the window takes.
TEST(NcclWorldTest, SizesAheadNeverHoldUpWhatIsThere) {
  constexpr uint32_t kRanks = 4, kLanes = 16;
  Cluster cluster({0, 1, 2, 3}, TestSeed(),
                  [](WorldOptions* options) { options->window_bytes = 50000; });
  const auto communicators = cluster.OpenAll(1);
  {
    Everywhere operation(communicators, 1);
    const auto size_of = [](uint32_t chunk, uint64_t lane) { return 1000 * (chunk + 1) + lane; };
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        OperationTransport& transport = *operation.transports[rank];
        const uint32_t next = (rank + 1) % kRanks;
        std::vector<FrameSize> sizes;
        for (uint64_t lane = 0; lane < kLanes; ++lane) {
          for (uint32_t step = 0; step + 1 < kRanks; ++step) {
            const uint32_t chunk = (rank + kRanks - step) % kRanks;
            sizes.push_back(
                {{.from = rank, .to = next, .lane = lane, .chunk = chunk}, size_of(chunk, lane)});
          }
        }
        EXPECT_TRUE(transport.AnnounceAhead(sizes).ok());
        for (uint64_t lane = kLanes; lane-- > 0;) {
          EXPECT_TRUE(
              transport
                  .Send({.from = rank, .to = next, .lane = lane, .chunk = rank},
                        MakeFrame(cluster.gpus[rank].get(), size_of(rank, lane), rank * 100 + lane))
                  .ok());
        }
        for (uint32_t seen = 0; seen < kLanes * (kRanks - 1);) {
          auto arrived = operation.sinks[rank]->AwaitFrames(1);
          ASSERT_FALSE(arrived.empty());
          for (auto& [tag, frame] : arrived) {
            ++seen;
            EXPECT_TRUE(Holds(frame, size_of(tag.chunk, tag.lane), tag.chunk * 100 + tag.lane));
            if (tag.chunk == next) continue;
            Tag on = tag;
            on.from = rank;
            on.to = next;
            EXPECT_TRUE(transport.Send(on, std::move(frame)).ok());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

// Two nodes of three and two GPUs, one rank each, whose lanes are dealt out to the GPUs.
TEST(NcclWorldTest, LanesHaveRails) {
  Cluster cluster({0, 1, 0, 1, 0}, TestSeed());
  const auto communicators = cluster.OpenAll(1, std::vector<uint32_t>{0, 1});
  const std::vector<uint32_t> rails[] = {{4, 0, 2}, {3, 1}};
  RecordingSink sinks[2];
  std::unique_ptr<OperationTransport> transports[2];
  for (const uint32_t node : {0U, 1U}) {
    OperationOptions options = Operation(1);
    options.rails[node] = rails[node];
    auto opened = communicators[node]->OpenOperation(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    transports[node] = *std::move(opened);
    transports[node]->Start(&sinks[node]);
  }
  for (const uint32_t node : {0U, 1U}) {
    for (uint64_t lane = 0; lane < 12; ++lane) {
      TestGpu* const gpu = cluster.gpus[rails[node][lane % rails[node].size()]].get();
      EXPECT_TRUE(transports[node]
                      ->Send({.from = node, .to = 1 - node, .lane = lane},
                             MakeFrame(gpu, 1000 + lane, lane))
                      .ok());
    }
  }
  for (const uint32_t node : {0U, 1U}) {
    const auto arrived = sinks[node].AwaitFrames(12);
    ASSERT_EQ(arrived.size(), 12U);
    for (const auto& [tag, frame] : arrived) {
      EXPECT_TRUE(Holds(frame, 1000 + tag.lane, tag.lane));
      EXPECT_EQ(frame.gpu(), static_cast<int>(rails[node][tag.lane % rails[node].size()]));
    }
  }
  EXPECT_THAT(Fake().violations(), testing::IsEmpty());
}

TEST(NcclWorldTest, NodesThatPlanDifferentlyAreTold) {
  Cluster cluster({0, 1}, TestSeed());
  const auto communicators = cluster.OpenAll(1);
  {
    auto first = communicators[0]->OpenOperation(Operation(1, 7));
    ASSERT_TRUE(first.ok());
    RecordingSink sink;
    (*first)->Start(&sink);
    auto second = communicators[1]->OpenOperation(Operation(1, 8));
    const auto [rank, reason] = sink.AwaitFailure();
    EXPECT_EQ(rank, 1U);
    EXPECT_THAT(std::string(reason.message()),
                testing::AllOf(testing::HasSubstr("plan 8"), testing::HasSubstr("plan 7")));
  }
  // The world works on.
  Everywhere operation(communicators, 2);
  EXPECT_TRUE(operation.transports[1]
                  ->Send({.from = 1, .to = 0}, MakeFrame(cluster.gpus[1].get(), 1000, 5))
                  .ok());
  EXPECT_EQ(operation.sinks[0]->AwaitFrames(1).size(), 1U);
}

TEST(NcclWorldTest, RefusesRanksThatAreNotItsOwn) {
  TestNet net(1);
  TestGpu gpu(0);
  Fake().Reset({.enqueue = TestGpu::Enqueue});
  WorldOptions options{.library = FakeLibrary(),
                       .node_of_rank = {0, 1},
                       .locals = {{1, &gpu, &gpu}},
                       .control = net.control(0)};
  EXPECT_EQ(World::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.locals = {};
  EXPECT_EQ(World::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace spccl::transport::nccl
