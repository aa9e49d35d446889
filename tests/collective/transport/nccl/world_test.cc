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

// One operation of a random exchange: who sends what to whom, and what came of it.
class Exchange {
 public:
  Exchange(Cluster* cluster, std::vector<uint32_t> map, uint64_t seed)
      : cluster_(cluster), map_(std::move(map)), random_(seed) {
    const auto ranks = static_cast<uint32_t>(map_.size());
    for (uint32_t from = 0; from < ranks; ++from) {
      for (uint32_t to = 0; to < ranks; ++to) {
        if (map_[from] == map_[to]) continue;
        for (uint64_t lane = 0; lane < 3; ++lane) {
          for (uint32_t chunk = 0; chunk < random_() % 6; ++chunk) Plan(from, to, lane, chunk);
        }
      }
    }
  }

  // All of one node's part, by a thread of its own.
  void Run(uint32_t node, Communicator* communicator, uint64_t sequence) {
    auto opened = communicator->OpenOperation(Operation(sequence));
    ASSERT_TRUE(opened.ok()) << opened.status();
    RecordingSink sink;
    (*opened)->Start(&sink);
    std::mt19937_64 random(sequence * 1000 + node);
    std::vector<size_t> order;
    size_t expected = 0;
    for (size_t i = 0; i < frames_.size(); ++i) {
      if (cluster_->node_of(map_[frames_[i].tag.from]) == node) order.push_back(i);
      expected += cluster_->node_of(map_[frames_[i].tag.to]) == node ? 1 : 0;
    }
    std::shuffle(order.begin(), order.end(), random);
    // Frames of one lane keep their order.
    std::map<WorldLane, std::vector<size_t>> by_lane;
    for (const size_t i : order) by_lane[LaneOf(frames_[i].tag)].push_back(i);
    for (auto& [lane, all] : by_lane) std::sort(all.rbegin(), all.rend());
    for (const size_t any : order) {
      std::vector<size_t>& lane = by_lane[LaneOf(frames_[any].tag)];
      const size_t i = lane.back();
      lane.pop_back();
      const Tag& tag = frames_[i].tag;
      ASSERT_TRUE((*opened)
                      ->Send(tag, MakeFrame(cluster_->gpus[map_[tag.from]].get(), frames_[i].bytes,
                                            NumberOf(sequence, i)))
                      .ok());
    }
    Check(sink.AwaitFrames(expected), expected, sequence);
    EXPECT_EQ(sink.failures(), 0U);
    (*opened)->Stop();
  }

 private:
  using WorldLane = std::tuple<uint32_t, uint32_t, uint64_t>;
  struct Planned {
    Tag tag;
    size_t bytes;
  };
  static WorldLane LaneOf(const Tag& tag) { return {tag.from, tag.to, tag.lane}; }
  static uint64_t NumberOf(uint64_t sequence, size_t index) { return sequence * 100000 + index; }

  void Plan(uint32_t from, uint32_t to, uint64_t lane, uint32_t chunk) {
    static constexpr size_t kSizes[] = {0, 1, 48, 1000, 65536, 300001};
    const size_t bytes = random_() % 3 == 0 ? random_() % 200000 : kSizes[random_() % 6];
    frames_.push_back({{.from = from, .to = to, .lane = lane, .chunk = chunk}, bytes});
  }

  void Check(const std::vector<RecordingSink::Arrived>& arrived, size_t expected,
             uint64_t sequence) {
    ASSERT_EQ(arrived.size(), expected);
    std::map<WorldLane, uint32_t> next;
    for (const auto& [tag, frame] : arrived) {
      EXPECT_EQ(tag.chunk, next[LaneOf(tag)]++);
      const auto planned = std::find_if(frames_.begin(), frames_.end(), [&](const Planned& one) {
        return LaneOf(one.tag) == LaneOf(tag) && one.tag.chunk == tag.chunk;
      });
      ASSERT_NE(planned, frames_.end());
      const auto index = static_cast<size_t>(planned - frames_.begin());
      EXPECT_TRUE(Holds(frame, planned->bytes, NumberOf(sequence, index)));
    }
  }

  Cluster* const cluster_;
  const std::vector<uint32_t> map_;
  std::mt19937_64 random_;
  std::vector<Planned> frames_;
};

TEST(NcclWorldTest, RandomFramesOfSeveralOperationsAtOnce) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const size_t ranks = 2 + random() % 7;
    const size_t nodes = 1 + random() % std::min<size_t>(ranks, 4);
    std::vector<uint32_t> layout;
    for (uint32_t rank = 0; rank < ranks; ++rank) layout.push_back(rank % nodes);
    std::shuffle(layout.begin(), layout.end(), random);
    // A small window and small groups, now and then: what waits must go on, too.
    const bool tight = random() % 2 == 0;
    Cluster cluster(layout, random(), [&](WorldOptions* options) {
      if (!tight) return;
      options->window_bytes = 100000;
      options->groups = {.most_transfers = 2, .most_bytes = 70000, .most_open_groups = 2};
    });
    // Two communicators: all GPUs in order, and the same shuffled.
    std::vector<uint32_t> map(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) map[rank] = rank;
    std::vector<std::vector<uint32_t>> maps = {map};
    std::shuffle(map.begin(), map.end(), random);
    maps.push_back(map);
    std::vector<std::vector<std::unique_ptr<Communicator>>> communicators;
    for (uint64_t key = 0; key < maps.size(); ++key) {
      communicators.push_back(cluster.OpenAll(key, maps[key]));
    }
    std::vector<Exchange> exchanges;
    for (uint64_t operation = 0; operation < 4; ++operation) {
      exchanges.emplace_back(&cluster, maps[operation % 2], random());
    }
    std::vector<std::thread> threads;
    for (uint32_t node = 0; node < nodes; ++node) {
      for (uint64_t key = 0; key < 2; ++key) {
        threads.emplace_back([&, node, key] {
          for (const uint64_t operation : {key, key + 2}) {
            exchanges[operation].Run(node, communicators[key][node].get(), operation + 1);
          }
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    communicators.clear();
    cluster.Close();
    ASSERT_THAT(Fake().violations(), testing::IsEmpty());
  }
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
        std::vector<OperationTransport::Size> sizes;
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
