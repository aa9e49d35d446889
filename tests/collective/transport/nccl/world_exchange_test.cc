// Worlds in which everybody sends to everybody, in random orders.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "collective/transport/nccl/world.h"
#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/seed.h"

namespace spccl::transport::nccl {
namespace {

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

TEST(NcclWorldExchangeTest, RandomFramesOfSeveralOperationsAtOnce) {
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

}  // namespace
}  // namespace spccl::transport::nccl
