// Operations between nodes whose frames go from GPU to GPU: the runtime on fake GPUs, over worlds
// of the fake NCCL, against the oracle.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "collective/runtime/cuda/nccl_environment.h"
#include "collective/runtime/node_scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/outcome.h"
#include "tests/collective/transport/nccl/cluster.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

namespace nccl = transport::nccl;

using policy::Algorithm;
using policy::Codec;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::Doing;
using spccl::testing::ExactElements;
using spccl::testing::FirstDifference;
using spccl::testing::FramesOut;
using spccl::testing::GpuRanks;
using spccl::testing::Outcome;
using spccl::testing::TheGpus;
using ::testing::HasSubstr;

struct Case {
  OpDesc op;
  std::vector<int> gpus;  // of the ranks
  Algorithm algorithm = Algorithm::kRing;
  policy::Settings settings;
  double sparsity = 0.9;
  uint64_t seed = 1;
  size_t slice_bytes = 512;

  uint32_t ranks() const { return static_cast<uint32_t>(gpus.size()); }
};

// The fake GPUs as those of several nodes, and a world over them all.
class World {
 public:
  // Each GPU is on a node of its own, or on the node that is said.
  explicit World(std::vector<uint32_t> node_of_gpu, const nccl::TestNet::Tamper& tamper = {})
      : node_of_gpu_(std::move(node_of_gpu)),
        nodes_(1 + *std::max_element(node_of_gpu_.begin(), node_of_gpu_.end())),
        net_(nodes_) {
    nccl::Fake().Reset({.seed = TestSeed()});
    if (tamper) net_.SetTamper(tamper);
    for (size_t gpu = 0; gpu < node_of_gpu_.size(); ++gpu) {
      gpus_.push_back(std::make_unique<OfWorld>(TheGpus().at(gpu)));
    }
    for (uint32_t node = 0; node < nodes_; ++node) {
      nccl::WorldOptions options{.library = nccl::FakeLibrary(),
                                 .node_of_rank = node_of_gpu_,
                                 .node = node,
                                 .locals = {},
                                 .control = net_.control(node)};
      for (uint32_t gpu = 0; gpu < node_of_gpu_.size(); ++gpu) {
        if (node_of_gpu_[gpu] != node) continue;
        options.locals.push_back({gpu, &gpus_[gpu]->issuer, &gpus_[gpu]->frames});
      }
      auto world = nccl::World::Create(std::move(options));
      SPCCL_CHECK(world.ok());
      worlds_.push_back(*std::move(world));
    }
    for (uint32_t node = 0; node < nodes_; ++node) net_.Connect(node, worlds_[node].get());
  }
  ~World() {
    net_.Stop();
    std::vector<std::thread> closing;
    for (auto& world : worlds_) closing.emplace_back([&world] { world.reset(); });
    for (std::thread& thread : closing) thread.join();
    gpus_.clear();
    EXPECT_EQ(nccl::Fake().live_communicators(), 0U);
    // What was received and not used goes when the streams are through.
    const int64_t until_ns = MonotonicNanos() + 20'000'000'000;
    while (FramesOut() > 0 && MonotonicNanos() < until_ns) std::this_thread::yield();
    EXPECT_EQ(FramesOut(), 0U);
  }

  uint32_t nodes() const { return static_cast<uint32_t>(nodes_); }
  uint32_t node_of(int gpu) const { return node_of_gpu_[static_cast<size_t>(gpu)]; }
  nccl::World& at(uint32_t node) { return *worlds_[node]; }
  // What nodes have said so far, others know.
  void Flush() { net_.Flush(); }

 private:
  // What the world has of a GPU.
  struct OfWorld {
    GpuIssuer issuer;
    GpuFrames frames;
    explicit OfWorld(Gpu& gpu) : issuer(gpu), frames(gpu) {}
  };

  const std::vector<uint32_t> node_of_gpu_;
  const size_t nodes_;
  nccl::TestNet net_;
  std::vector<std::unique_ptr<OfWorld>> gpus_;
  std::vector<std::unique_ptr<nccl::World>> worlds_;
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(policy::NameOf(c.algorithm)), " ", std::string(NameOf(c.op.kind)),
                      " ", std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " root ", c.op.root, " gpus ",
                      absl::StrJoin(c.gpus, ","), " codec ",
                      std::string(policy::NameOf(c.settings.codec)), " sparsity ", c.sparsity,
                      " slice ", c.slice_bytes, " seed ", c.seed);
}

// One operation of one communicator, on all nodes.
class Nodes {
 public:
  Nodes(World* world, const Case& c, const std::vector<Bytes>& inputs, uint64_t key)
      : ranks_(TheGpus(), c.op, inputs, c.gpus, 0) {
    ranks_.EnqueueAll();
    std::vector<uint32_t> node_of_rank, gpu_of_rank;
    for (const int gpu : c.gpus) {
      node_of_rank.push_back(world->node_of(gpu));
      gpu_of_rank.push_back(static_cast<uint32_t>(gpu));
    }
    const std::set<uint32_t> taking_part(node_of_rank.begin(), node_of_rank.end());
    for (const uint32_t node : taking_part) {
      nodes_[node] = std::make_unique<Node>();
      nodes_[node]->communicator = *world->at(node).OpenCommunicator({2, key}, gpu_of_rank);
    }
    for (auto& [node, one] : nodes_) Make(c, node_of_rank, node, one.get());
    world->Flush();
  }

  bool Run() {
    for (auto& [node, one] : nodes_) one->task->Start();
    bool all = true;
    for (auto& [node, one] : nodes_) all = one->outcome.Wait().has_value() && all;
    return all;
  }
  std::vector<OpResult> results() {
    std::vector<OpResult> all;
    for (auto& [node, one] : nodes_) all.push_back(*one->outcome.Wait());
    return all;
  }
  std::string Doings() const {
    std::string text;
    for (const auto& [node, one] : nodes_) absl::StrAppend(&text, Doing(one->task->Look()), "\n");
    return text;
  }
  GpuRanks& ranks() { return ranks_; }

 private:
  struct Node {
    std::unique_ptr<nccl::Communicator> communicator;
    std::unique_ptr<NodeScope> scope;
    Outcome outcome;
    std::shared_ptr<Task> task;
  };

  void Make(const Case& c, const std::vector<uint32_t>& node_of_rank, uint32_t node, Node* one) {
    one->scope = *NodeScope::Create(node_of_rank, node);
    const std::vector<RankBuffers> buffers = ranks_.buffers();
    std::vector<RankBuffers> local;
    for (const uint32_t rank : one->scope->local_ranks()) local.push_back(buffers[rank]);
    policy::Tuning tuning;
    tuning.algorithm = c.algorithm;
    tuning.slice_bytes = c.slice_bytes;
    const OpenTransport through_host = [](uint64_t, uint64_t) {
      return absl::InternalError("frames are to stay on the GPUs");
    };
    const OpenGpuTransport open =
        [one](
            uint64_t plan, uint64_t largest,
            std::span<Gpu* const> rails) -> absl::StatusOr<std::unique_ptr<transport::Transport>> {
      nccl::OperationOptions options{.sequence = 1, .plan = plan, .largest_frame_bytes = largest};
      for (const uint32_t rank : one->scope->local_ranks()) {
        for (Gpu* const gpu : rails) {
          options.rails[rank].push_back(static_cast<uint32_t>(gpu->index()));
        }
      }
      return one->communicator->OpenOperation(options);
    };
    auto made = one->scope->MakeTask(c.op, local, c.settings, tuning, through_host,
                                     one->outcome.Fn(), &TheGpus(), open);
    SPCCL_CHECK(made.ok());
    one->task = std::move(made->task);
  }

  GpuRanks ranks_;
  std::map<uint32_t, std::unique_ptr<Node>> nodes_;
};

std::vector<Bytes> Inputs(const Case& c) {
  std::mt19937_64 random(c.seed);
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, SendElements(c.op, c.ranks()), c.sparsity,
                                   c.op.redop == RedOp::kProd, false, &random));
  }
  return inputs;
}

void ExpectRight(World* world, const Case& c, uint64_t key) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = Inputs(c);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  Nodes nodes(world, c, inputs, key);
  ASSERT_TRUE(nodes.Run()) << nodes.Doings();
  for (const OpResult& result : nodes.results()) ASSERT_TRUE(result.status.ok()) << result.status;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference =
        FirstDifference(c.op.dtype, nodes.ranks().Received(rank), expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
}

// Ranks in any number on any GPU, but of two nodes at least.
Case RandomCase(const World& world, std::mt19937_64* random) {
  Case c;
  do {
    c.algorithm = static_cast<Algorithm>(2 + (*random)() % (policy::kAlgorithmCount - 2));
    c.op.kind = static_cast<OpKind>((*random)() % kOpKindCount);
  } while (!policy::HasPlan(c.algorithm, c.op.kind));
  std::set<uint32_t> nodes;
  while (nodes.size() < 2) {
    nodes.clear();
    c.gpus.clear();
    for (uint64_t ranks = 2 + (*random)() % 5; ranks > 0; --ranks) {
      c.gpus.push_back(static_cast<int>((*random)() % spccl::testing::kFakeGpus));
      nodes.insert(world.node_of(c.gpus.back()));
    }
  }
  c.op.dtype = static_cast<DType>((*random)() % kDTypeCount);
  c.op.redop = static_cast<RedOp>((*random)() % kRedOpCount);
  c.op.count = 1 + (*random)() % 3000;
  c.op.root = static_cast<uint32_t>((*random)() % c.ranks());
  c.settings.codec = static_cast<Codec>((*random)() % policy::kCodecCount);
  constexpr double kSparsities[] = {0, 0.5, 0.9, 0.99, 1};
  c.sparsity = kSparsities[(*random)() % std::size(kSparsities)];
  c.slice_bytes = size_t{256} << (*random)() % 6;
  c.seed = (*random)();
  return c;
}

TEST(GpuNcclTest, RandomOperations) {
  std::mt19937_64 random(TestSeed());
  for (const std::vector<uint32_t>& layout :
       std::vector<std::vector<uint32_t>>{{0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 0, 2}}) {
    World world(layout);
    for (uint64_t round = 0; round < 12; ++round) {
      ExpectRight(&world, RandomCase(world, &random), round);
      if (HasFatalFailure()) return;
    }
    EXPECT_THAT(nccl::Fake().violations(), ::testing::IsEmpty());
    EXPECT_GT(nccl::Fake().sends(), 0U);
  }
}

TEST(GpuNcclTest, SeveralOperationsAtOnce) {
  std::mt19937_64 random(TestSeed());
  World world({0, 0, 1, 1});
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&world, thread, seed = random()] {
      std::mt19937_64 own(seed);
      for (uint64_t round = 0; round < 4; ++round) {
        ExpectRight(&world, RandomCase(world, &own), thread * 100 + round);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(nccl::Fake().violations(), ::testing::IsEmpty());
}

// Of the three ways that each rank's part goes around the ring two pass on what came: its size is
// told before it is there. What a rank sends of its own is announced when it is there.
TEST(GpuNcclTest, WhatIsPassedOnIsAnnouncedAhead) {
  std::mutex mutex;
  std::map<std::pair<uint32_t, uint64_t>, transport::Tag> announced;  // by node and its number
  size_t ahead = 0, at_once = 0;
  World world({0, 1, 2, 3}, [&](uint32_t from, uint32_t, std::string bytes) {
    const nccl::Message message = *nccl::ParseMessage(bytes);
    const std::lock_guard lock(mutex);
    for (const nccl::Announced& frame : message.frames) {
      const std::pair key(from, frame.id);
      const bool was_announced = announced.contains(key);
      if (frame.announces) announced[key] = frame.tag;
      if (!frame.offers) continue;
      const bool is_own = announced.at(key).chunk == announced.at(key).from;
      EXPECT_EQ(was_announced, !is_own);
      ++(was_announced ? ahead : at_once);
    }
    return std::vector{std::move(bytes)};
  });
  for (const Codec codec : {Codec::kDense, Codec::kPici}) {
    Case c;
    c.op = {.kind = OpKind::kAllGather, .dtype = DType::kFloat32, .count = 1000};
    c.gpus = {0, 1, 2, 3};
    c.settings.codec = codec;
    c.sparsity = 0.99;
    c.slice_bytes = 1024;
    ahead = at_once = 0;
    ExpectRight(&world, c, static_cast<uint64_t>(codec));
    const std::lock_guard lock(mutex);
    EXPECT_EQ(ahead, 2 * at_once);
    EXPECT_EQ(at_once, 4U * 4);  // 256 elements a slice
  }
}

TEST(GpuNcclTest, ALyingHeaderIsNotBelieved) {
  World world({0, 1, 2, 3}, [](uint32_t, uint32_t, std::string bytes) {
    nccl::Message message = *nccl::ParseMessage(bytes);
    if (message.kind != nccl::MessageKind::kAnnounce) return std::vector{std::move(bytes)};
    for (nccl::Announced& frame : message.frames) frame.head[16] ^= std::byte{1};  // nnz
    return std::vector{nccl::FormatMessage(message)};
  });
  Case c;
  c.op = {.count = 3000};
  c.gpus = {0, 1};
  c.settings.codec = Codec::kPici;
  const std::vector<Bytes> inputs = Inputs(c);
  Nodes nodes(&world, c, inputs, 1);
  ASSERT_TRUE(nodes.Run()) << nodes.Doings();
  for (const OpResult& result : nodes.results()) {
    EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss) << result.status;
  }
  for (uint32_t rank = 0; rank < 2; ++rank) (void)nodes.ranks().Received(rank);
}

// A bit more in the bitmap than the header says.
TEST(GpuNcclTest, ALyingBodyIsNotBelieved) {
  World world({0, 1, 2, 3});
  Case c;
  c.op = {.count = 3000};
  c.gpus = {0, 1};
  c.settings.codec = Codec::kPici;
  c.sparsity = 0.99;
  c.slice_bytes = size_t{1} << 16;  // smaller ones are not worth compressing
  const std::vector<Bytes> inputs = Inputs(c);
  Nodes nodes(&world, c, inputs, 1);
  nccl::Fake().CorruptByte(sizeof(FrameHeader));
  ASSERT_TRUE(nodes.Run()) << nodes.Doings();
  for (const OpResult& result : nodes.results()) {
    EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss) << result.status;
  }
  for (uint32_t rank = 0; rank < 2; ++rank) (void)nodes.ranks().Received(rank);
}

TEST(GpuNcclTest, AWorldThatFailsEndsItsOperations) {
  World world({0, 1, 2, 3});
  Case c;
  c.op = {.count = 3000};
  c.gpus = {0, 1, 2};
  const std::vector<Bytes> inputs = Inputs(c);
  {
    Nodes nodes(&world, c, inputs, 1);
    nccl::Fake().FailRank(2, nccl::kRemoteError);
    world.at(0).OnNodeDown(2, absl::UnavailableError("gone"));
    ASSERT_TRUE(nodes.Run()) << nodes.Doings();
    for (const OpResult& result : nodes.results()) {
      EXPECT_THAT(std::string(result.status.message()), HasSubstr("lost GPU rank 2"));
      EXPECT_EQ(result.culprit_rank, 2);
    }
    for (uint32_t rank = 0; rank < 3; ++rank) (void)nodes.ranks().Received(rank);
  }
}

TEST(GpuNcclTest, AProcessThatIsGoneAndNobodyMissesIsNobodysFault) {
  World world({0, 1, 2, 3});
  Case c;
  c.op = {.count = 3000};
  c.gpus = {0, 1, 2};
  const std::vector<Bytes> inputs = Inputs(c);
  {
    Nodes nodes(&world, c, inputs, 1);
    nccl::Fake().FailRank(2, nccl::kRemoteError);
    ASSERT_TRUE(nodes.Run()) << nodes.Doings();
    for (const OpResult& result : nodes.results()) {
      EXPECT_THAT(std::string(result.status.message()),
                  HasSubstr("NCCL on GPU rank 2 found another process gone"));
      EXPECT_EQ(result.culprit_rank, -1);
    }
    for (uint32_t rank = 0; rank < 3; ++rank) (void)nodes.ranks().Received(rank);
  }
}

}  // namespace
}  // namespace spccl::runtime
