// Operations between nodes whose ranks are on fake GPUs: frames bounce through the hosts, over a
// network that delays and reorders.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "collective/runtime/node_scope.h"
#include "collective/transport/fake/fake_net.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/draw_slice.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/gpu_wire.h"
#include "tests/collective/runtime/cuda/outcome.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/seed.h"
#include "tests/support/thinning.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using policy::Codec;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::Doing;
using spccl::testing::DrawSliceBytes;
using spccl::testing::ExactElements;
using spccl::testing::FirstDifference;
using spccl::testing::FramesOut;
using spccl::testing::GpuRanks;
using spccl::testing::GpuWire;
using spccl::testing::Outcome;
using spccl::testing::TheGpus;
using ::testing::HasSubstr;

constexpr int64_t kDeadlineNs = 60'000'000'000;

struct Case {
  OpDesc op;
  std::vector<uint32_t> node_of_rank = {0, 1};
  std::vector<int> gpus = {0, 1};
  Algorithm algorithm = Algorithm::kRing;
  policy::Settings settings;
  double sparsity = 0.9;
  uint64_t in_place = 0;
  size_t slice_bytes = 512, room_frames = 0;
  uint64_t seed = 1;
  bool by_wire = false;  // frames stay in the GPUs' memory

  uint32_t ranks() const { return static_cast<uint32_t>(node_of_rank.size()); }
  uint32_t nodes() const { return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1; }
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(policy::NameOf(c.algorithm)), " ", std::string(NameOf(c.op.kind)),
                      " ", std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " root ", c.op.root, " nodes ",
                      absl::StrJoin(c.node_of_rank, ","), " gpus ", absl::StrJoin(c.gpus, ","),
                      " codec ", std::string(policy::NameOf(c.settings.codec)), " sparsity ",
                      c.sparsity, " in place ", c.in_place, " slice ", c.slice_bytes, " room ",
                      c.room_frames, " seed ", c.seed);
}

std::vector<Bytes> Inputs(const Case& c) {
  std::mt19937_64 random(c.seed);
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, SendElements(c.op, c.ranks()), c.sparsity,
                                   c.op.redop == RedOp::kProd, false, &random));
  }
  return inputs;
}

// All nodes of one operation.
class Nodes {
 public:
  Nodes(const Case& c, const std::vector<Bytes>& inputs)
      : net_(c.seed, c.node_of_rank),
        wire_(c.node_of_rank),
        ranks_(TheGpus(), c.op, inputs, c.gpus, c.in_place) {
    if (c.room_frames != 0) net_.LimitRoom(c.room_frames);
    ranks_.EnqueueAll();
    const std::vector<RankBuffers> buffers = ranks_.buffers();
    for (uint32_t node = 0; node < c.nodes(); ++node) {
      nodes_.push_back(std::make_unique<Node>());
      Node& one = *nodes_.back();
      one.scope = *NodeScope::Create(c.node_of_rank, node);
      std::vector<RankBuffers> local;
      for (const uint32_t rank : one.scope->local_ranks()) local.push_back(buffers[rank]);
      policy::Tuning tuning;
      tuning.algorithm = c.algorithm;
      tuning.slice_bytes = c.slice_bytes;
      auto made = one.scope->MakeTask(
          c.op, local, c.settings, tuning,
          [&](uint64_t, uint64_t) { return c.by_wire ? wire_.Open(node) : net_.Open(node); },
          one.outcome.Fn(), &TheGpus());
      EXPECT_TRUE(made.ok()) << made.status();
      one.task = std::move(made->task);
      EXPECT_TRUE(one.task->RunsItself());
    }
  }

  // False if some node does not end.
  bool Run() {
    for (const auto& node : nodes_) node->task->Start();
    const int64_t until_ns = MonotonicNanos() + kDeadlineNs;
    while (!Ended()) {
      if (net_.DeliverOne()) continue;
      if (MonotonicNanos() > until_ns) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool Ended() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->outcome.calls() > 0; });
  }
  std::string Doings() const {
    std::string text;
    for (const auto& node : nodes_) absl::StrAppend(&text, Doing(node->task->Look()), "\n");
    return text;
  }
  OpResult result(uint32_t node) { return *nodes_[node]->outcome.Wait(); }
  transport::FakeNet& net() { return net_; }
  GpuWire& wire() { return wire_; }
  GpuRanks& ranks() { return ranks_; }
  Task& task(uint32_t node) { return *nodes_[node]->task; }
  void Drop() { nodes_.clear(); }

 private:
  struct Node {
    std::unique_ptr<NodeScope> scope;
    Outcome outcome;
    std::shared_ptr<Task> task;
  };
  transport::FakeNet net_;
  GpuWire wire_;
  GpuRanks ranks_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// The network has let go of the frames that it has not delivered; a sink may still be at one.
void ExpectNoFramesOut() {
  const int64_t until_ns = MonotonicNanos() + kDeadlineNs;
  while (FramesOut() > 0 && MonotonicNanos() < until_ns) std::this_thread::yield();
  EXPECT_EQ(FramesOut(), 0U);
}

void ExpectRight(const Case& c) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = Inputs(c);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  {
    Nodes nodes(c, inputs);
    ASSERT_TRUE(nodes.Run()) << nodes.Doings();
    for (uint32_t node = 0; node < c.nodes(); ++node) {
      ASSERT_TRUE(nodes.result(node).status.ok()) << nodes.result(node).status;
    }
    for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
      const auto difference =
          FirstDifference(c.op.dtype, nodes.ranks().Received(rank), expected[rank]);
      ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
    }
  }
  ExpectNoFramesOut();
}

// Ranks of each node in any number, on any of the GPUs.
void DrawRanks(std::mt19937_64* random, Case* c) {
  c->node_of_rank.clear();
  c->gpus.clear();
  const uint32_t nodes = static_cast<uint32_t>(2 + (*random)() % 3);
  for (uint32_t node = 0; node < nodes; ++node) {
    for (uint64_t ranks = 1 + (*random)() % 3; ranks > 0; --ranks) {
      c->node_of_rank.push_back(node);
      c->gpus.push_back(static_cast<int>((*random)() % 4));
    }
  }
}

TEST(GpuNodesTest, EveryAlgorithmAndOperation) {
  std::mt19937_64 random(TestSeed());
  for (int algorithm = 2; algorithm < policy::kAlgorithmCount; ++algorithm) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      Case c;
      c.algorithm = static_cast<Algorithm>(algorithm);
      c.op.kind = static_cast<OpKind>(kind);
      if (!policy::HasPlan(c.algorithm, c.op.kind)) continue;
      for (int round = 0; round < 3; ++round) {
        DrawRanks(&random, &c);
        c.op.dtype = static_cast<DType>(random() % kDTypeCount);
        c.op.redop = static_cast<RedOp>(random() % kRedOpCount);
        c.op.count = 1 + random() % 800;
        c.op.root = static_cast<uint32_t>(random() % c.ranks());
        c.settings.codec = static_cast<Codec>(random() % policy::kCodecCount);
        c.in_place = random();
        c.seed = random();
        ExpectRight(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// GPUs 2 and 3 do not reach each other: lanes of one have ranks whose outputs are all on the other,
// and send what an earlier run has written there.
TEST(GpuNodesTest, WhatALanesGpuDoesNotReachIsFetched) {
  std::mt19937_64 random(TestSeed());
  for (int algorithm = 2; algorithm < policy::kAlgorithmCount; ++algorithm) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      Case c;
      c.algorithm = static_cast<Algorithm>(algorithm);
      c.op.kind = static_cast<OpKind>(kind);
      if (!policy::HasPlan(c.algorithm, c.op.kind)) continue;
      c.node_of_rank = {0, 0, 0, 1, 1, 2};
      c.gpus = {2, 3, 3, 3, 2, 2};
      c.op.count = 500 + random() % 500;
      c.op.root = static_cast<uint32_t>(random() % c.ranks());
      c.slice_bytes = 256;
      c.seed = random();
      ExpectRight(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GpuNodesTest, SparseEqualsDenseProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr double kSparsities[] = {0, 0.3, 0.5, 0.9, 0.99, 1};
  constexpr uint64_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 255, 1023, 4097};
  for (int round = 0; round < Thinned(25); ++round) {
    Case c;
    do {
      c.algorithm = static_cast<Algorithm>(2 + random() % (policy::kAlgorithmCount - 2));
      c.op.kind = static_cast<OpKind>(random() % kOpKindCount);
    } while (!policy::HasPlan(c.algorithm, c.op.kind));
    DrawRanks(&random, &c);
    c.op.dtype = static_cast<DType>(random() % kDTypeCount);
    c.op.redop = random() % 3 == 0 ? static_cast<RedOp>(random() % kRedOpCount) : RedOp::kSum;
    c.op.count = kCounts[random() % std::size(kCounts)];
    c.op.root = static_cast<uint32_t>(random() % c.ranks());
    c.settings.codec = static_cast<Codec>(random() % policy::kCodecCount);
    c.settings.pici = c.settings.coo = {.intra = static_cast<double>(random() % 11) / 10,
                                        .inter = static_cast<double>(random() % 11) / 10,
                                        .ag = static_cast<double>(random() % 11) / 10};
    c.sparsity = kSparsities[random() % std::size(kSparsities)];
    c.in_place = random();
    c.slice_bytes = DrawSliceBytes(c.op, c.ranks(), 8, &random);
    c.room_frames = random() % 3 == 0 ? 1 + random() % 4 : 0;
    c.seed = random();
    ExpectRight(c);
    if (HasFatalFailure()) return;
  }
}

TEST(GpuNodesTest, FramesMayStayOnTheGpus) {
  std::mt19937_64 random(TestSeed());
  for (int algorithm = 2; algorithm < policy::kAlgorithmCount; ++algorithm) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      Case c;
      c.by_wire = true;
      c.algorithm = static_cast<Algorithm>(algorithm);
      c.op.kind = static_cast<OpKind>(kind);
      if (!policy::HasPlan(c.algorithm, c.op.kind)) continue;
      c.node_of_rank = {0, 0, 1, 1, 2, 2};
      c.gpus = {0, 1, 1, 0, 0, 1};
      c.op.dtype = static_cast<DType>(random() % kDTypeCount);
      c.op.redop = random() % 2 == 0 ? RedOp::kSum : static_cast<RedOp>(random() % kRedOpCount);
      c.op.count = 1 + random() % 3000;
      c.op.root = static_cast<uint32_t>(random() % c.ranks());
      c.settings.codec = static_cast<Codec>(random() % policy::kCodecCount);
      c.in_place = random();
      c.seed = random();
      ExpectRight(c);
      if (HasFatalFailure()) return;
    }
  }
}

// A frame that lies is found before a kernel reads it, though the host does not see its body.
TEST(GpuNodesTest, ALyingFrameOnAGpuFailsTheOperation) {
  for (const bool in_header : {true, false}) {
    Case c;
    c.by_wire = true;
    c.op = {.count = 50'000};
    c.gpus = {0, 0};
    c.slice_bytes = 16'384;  // a tile: short ones are no smaller as pici
    c.settings.codec = Codec::kPici;
    {
      Nodes nodes(c, Inputs(c));
      nodes.wire().ChangeNext([&](transport::Frame* frame) {
        if (in_header) {
          static_cast<FrameHeader*>(frame->header())->values_offset += 16;
          return;
        }
        SPCCL_CHECK(static_cast<FrameHeader*>(frame->header())->format ==
                    static_cast<uint8_t>(Format::kPici));
        const cuda::Driver& driver = *TheGpus().driver();
        const cuda::ScopedContext current(driver, TheGpus().at(0).context());
        cuda::Stream stream = nullptr;
        SPCCL_CHECK(driver.StreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0) == 0);
        SPCCL_CHECK(
            driver.MemsetD8Async(spccl::testing::PointerOf(frame->data() + sizeof(FrameHeader)),
                                 0xFF, 64, stream) == 0);
        SPCCL_CHECK(driver.StreamSynchronize(stream) == 0);
        SPCCL_CHECK(driver.StreamDestroy(stream) == 0);
      });
      nodes.task(0).Start();
      nodes.task(1).Start();
      const int64_t until_ns = MonotonicNanos() + kDeadlineNs;
      int failed = -1;
      while (failed < 0 && MonotonicNanos() < until_ns) {
        for (int node = 0; node < 2; ++node) {
          if (nodes.task(static_cast<uint32_t>(node)).Look().lines.empty()) failed = node;
        }
        std::this_thread::yield();
      }
      ASSERT_GE(failed, 0);
      const OpResult result = nodes.result(static_cast<uint32_t>(failed));
      EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss)
          << result.status << " node " << failed << " header " << in_header << "; "
          << nodes.Doings();
      EXPECT_EQ(result.culprit_rank, 1 - failed);
      nodes.task(static_cast<uint32_t>(1 - failed)).Cancel(absl::AbortedError("told"), failed);
      (void)nodes.result(static_cast<uint32_t>(1 - failed));
      for (uint32_t rank = 0; rank < 2; ++rank) (void)nodes.ranks().Received(rank);
    }
    ExpectNoFramesOut();
  }
}

TEST(GpuNodesTest, ABadFrameFailsTheOperationAndNamesItsSender) {
  Case c;
  c.op = {.count = 5000};
  Nodes nodes(c, Inputs(c));
  nodes.net().CorruptNext([](transport::Frame* frame) { frame->data()[6] ^= std::byte{3}; });
  nodes.task(0).Start();
  nodes.task(1).Start();
  const int64_t until_ns = MonotonicNanos() + kDeadlineNs;
  // The one that got it fails; the other waits, until it is told.
  int failed = -1;
  while (failed < 0 && MonotonicNanos() < until_ns) {
    nodes.net().DeliverOne();
    for (int node = 0; node < 2; ++node) {
      if (!nodes.task(static_cast<uint32_t>(node)).Look().lines.empty()) continue;
      failed = node;
    }
    std::this_thread::yield();
  }
  ASSERT_GE(failed, 0);
  const OpResult result = nodes.result(static_cast<uint32_t>(failed));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss) << result.status;
  EXPECT_EQ(result.culprit_rank, 1 - failed);
  const auto other = static_cast<uint32_t>(1 - failed);
  nodes.task(other).Cancel(absl::AbortedError("told"), failed);
  EXPECT_FALSE(nodes.result(other).status.ok());
  (void)nodes.ranks().Received(0);
  (void)nodes.ranks().Received(1);
}

TEST(GpuNodesTest, ADeadNodeEndsTheOperation) {
  for (uint64_t after = 0; after < 12; after += 3) {
    Case c;
    c.op = {.count = 5000};
    c.node_of_rank = {0, 0, 1};
    c.gpus = {0, 1, 2};
    {
      Nodes nodes(c, Inputs(c));
      nodes.net().Kill(2, after, absl::UnavailableError("node 1 is gone"));
      nodes.task(0).Start();
      nodes.task(1).Start();
      const int64_t until_ns = MonotonicNanos() + kDeadlineNs;
      while (!nodes.task(0).Look().lines.empty() && MonotonicNanos() < until_ns) {
        if (!nodes.net().DeliverOne()) std::this_thread::yield();
      }
      const OpResult result = nodes.result(0);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable) << result.status;
      EXPECT_EQ(result.culprit_rank, 2);
      nodes.task(1).Cancel(absl::AbortedError("killed"), 2);
      (void)nodes.result(1);
      for (uint32_t rank = 0; rank < 3; ++rank) (void)nodes.ranks().Received(rank);
    }
    ExpectNoFramesOut();
  }
}

}  // namespace
}  // namespace spccl::runtime
