// Operations between nodes: every node's PlanTask over a network that delays and reorders.
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cluster.h"
#include "tests/support/seed.h"
#include "tests/support/thinning.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using policy::Codec;
using policy::Reason;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;

constexpr OpKind kKinds[] = {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce,
                             OpKind::kBroadcast, OpKind::kScatter};
constexpr Algorithm kAlgorithms[] = {Algorithm::kRing,
                                     Algorithm::kTwoLevelRing,
                                     Algorithm::kRecursiveDoubling,
                                     Algorithm::kHalvingDoubling,
                                     Algorithm::kSplit,
                                     Algorithm::kDirect,
                                     Algorithm::kTree};
constexpr Codec kCodecs[] = {Codec::kAuto, Codec::kDense, Codec::kPici, Codec::kPiciColumn,
                             Codec::kCoo};

// Ranks of each node in any number and any order.
std::vector<uint32_t> RandomNodes(std::mt19937_64* random) {
  const uint32_t nodes = static_cast<uint32_t>(1 + (*random)() % 6);
  std::vector<uint32_t> node_of_rank;
  for (uint32_t node = 0; node < nodes; ++node) {
    node_of_rank.insert(node_of_rank.end(), 1 + (*random)() % 3, node);
  }
  if ((*random)() % 2 == 0) std::shuffle(node_of_rank.begin(), node_of_rank.end(), *random);
  return node_of_rank;
}

void ExpectResults(const ClusterCase& c, const std::vector<Bytes>& inputs, const Cluster& cluster) {
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  for (uint32_t node = 0; node < c.nodes(); ++node) {
    ASSERT_EQ(cluster.box(node).calls(), 1) << "node " << node;
    ASSERT_TRUE(cluster.box(node).result()->status.ok()) << cluster.box(node).result()->status;
  }
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference = FirstDifference(c.op.dtype, cluster.Received(rank), expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
}

// The case, and the same with all frames dense: both must give the oracle's results.
void ExpectRight(const ClusterCase& c) {
  const std::vector<Bytes> inputs = InputsOf(c);
  ClusterCase dense = c;
  dense.settings.codec = Codec::kDense;
  for (const ClusterCase& one : {dense, c}) {
    SCOPED_TRACE(Describe(one));
    Cluster cluster(one, inputs);
    ASSERT_TRUE(cluster.Alternate()) << "stuck";
    ExpectResults(one, inputs, cluster);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(cluster.net().owed(), 0U);
    const OpStats stats = cluster.Stats();
    EXPECT_LE(stats.wire_bytes, stats.dense_bytes);
    uint64_t sends = 0, step_sends = 0, step_bytes = 0;
    for (const uint64_t count : stats.sends_by_format) sends += count;
    for (const SendStepStats& step : stats.send_steps) {
      for (const uint64_t count : step.decisions) step_sends += count;
      step_bytes += step.wire_bytes;
    }
    EXPECT_EQ(step_sends, sends);
    EXPECT_EQ(step_bytes, stats.wire_bytes);
  }
}

TEST(NodePlanTest, EveryAlgorithmOperationTypeAndReduction) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    for (const OpKind kind : kKinds) {
      if (!policy::HasPlan(algorithm, kind)) continue;
      for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
        for (int redop = 0; redop < (Reduces(kind) ? kRedOpCount : 1); ++redop) {
          ClusterCase c;
          c.algorithm = algorithm;
          c.op = {.kind = kind,
                  .dtype = static_cast<DType>(dtype),
                  .redop = static_cast<RedOp>(redop),
                  .count = 1 + random() % 400};
          c.node_of_rank = RandomNodes(&random);
          c.op.root = static_cast<uint32_t>(random() % c.ranks());
          c.settings.codec = kCodecs[random() % std::size(kCodecs)];
          c.in_place = random();
          c.remote = random() & random();
          c.announces = random() % 2 == 0;
          c.seed = random();
          ExpectRight(c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// How many sizes the four nodes of an operation tell before they have the frames.
size_t ToldAhead(Algorithm algorithm, OpKind kind) {
  ClusterCase c;
  c.algorithm = algorithm;
  c.op = {.kind = kind, .dtype = DType::kInt32, .count = 100};
  c.node_of_rank = {0, 1, 2, 3};
  c.slice_bytes = 256;
  c.announces = true;
  c.seed = TestSeed();
  const std::vector<Bytes> inputs = InputsOf(c);
  Cluster cluster(c, inputs);
  EXPECT_TRUE(cluster.Alternate()) << "stuck";
  ExpectResults(c, inputs, cluster);
  EXPECT_EQ(cluster.net().owed(), 0U);
  return cluster.net().told_ahead();
}

TEST(NodePlanTest, SizesOfWhatIsPassedOnAreToldAhead) {
  // Of the three ways that each of four chunks goes, two pass on what came. Chunks of an all-gather
  // are 100 elements here, which is two slices.
  EXPECT_EQ(ToldAhead(Algorithm::kRing, OpKind::kAllGather), 4U * 2 * 2);
  EXPECT_EQ(ToldAhead(Algorithm::kRing, OpKind::kAllReduce), 4U * 2);
  // The root sends to two; one of them to the fourth.
  EXPECT_GT(ToldAhead(Algorithm::kTree, OpKind::kBroadcast), 0U);
  EXPECT_EQ(ToldAhead(Algorithm::kRing, OpKind::kReduceScatter), 0U);
  EXPECT_EQ(ToldAhead(Algorithm::kDirect, OpKind::kAllGather), 0U);
}

TEST(NodePlanTest, AFrameOfAnotherSizeThanAnnouncedIsRefused) {
  ClusterCase c;
  c.op = {.kind = OpKind::kAllGather, .dtype = DType::kInt32, .count = 100};
  c.node_of_rank = {0, 1, 2, 3};
  c.announces = true;
  c.seed = TestSeed();
  Cluster cluster(c, InputsOf(c));
  uint32_t sender = 99;
  cluster.net().RetagNext([&](transport::Tag* tag) { sender = tag->from; });
  cluster.net().CorruptNext(
      [](transport::Frame* frame) { frame->set_size_bytes(frame->size_bytes() - 1); });
  EXPECT_FALSE(cluster.Alternate());  // nobody tells the others, which wait, or have all they need
  uint32_t failed = 0;
  for (uint32_t node = 0; node < c.nodes(); ++node) {
    const std::optional<OpResult> result = cluster.box(node).result();
    if (!result.has_value() || result->status.ok()) continue;
    ++failed;
    EXPECT_THAT(std::string(result->status.message()), ::testing::HasSubstr("was announced with"));
    EXPECT_EQ(result->culprit_rank, static_cast<int>(sender));
  }
  EXPECT_EQ(failed, 1U);
}

TEST(NodePlanTest, SparseEqualsDenseProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr double kSparsities[] = {0, 0.3, 0.5, 0.9, 0.99, 1};
  constexpr uint64_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 255, 1023, 4096, 4097};
  for (int round = 0; round < Thinned(300); ++round) {
    ClusterCase c;
    do {
      c.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
      c.op.kind = kKinds[random() % std::size(kKinds)];
    } while (!policy::HasPlan(c.algorithm, c.op.kind));
    c.op.dtype = static_cast<DType>(random() % kDTypeCount);
    c.op.redop = random() % 3 == 0 ? static_cast<RedOp>(random() % kRedOpCount) : RedOp::kSum;
    c.op.count = kCounts[random() % std::size(kCounts)];
    c.node_of_rank = RandomNodes(&random);
    c.op.root = static_cast<uint32_t>(random() % c.ranks());
    c.settings.codec = kCodecs[random() % std::size(kCodecs)];
    const auto threshold = [&] { return static_cast<double>(random() % 11) / 10; };
    c.settings.pici =
        c.settings.coo = {.intra = threshold(), .inter = threshold(), .ag = threshold()};
    for (policy::Leaning& usual : c.habit) usual = static_cast<policy::Leaning>(random() % 3);
    c.sparsity = kSparsities[random() % std::size(kSparsities)];
    c.specials = c.op.redop == RedOp::kSum && random() % 2 == 0;
    c.in_place = random();
    c.remote = random() & random();
    c.slice_bytes = size_t{64} << (random() % 8);
    c.open_lanes = static_cast<uint32_t>(1 + random() % 5);
    c.room_frames = random() % 4;
    c.announces = random() % 2 == 0;
    c.seed = random();
    ExpectRight(c);
    if (HasFatalFailure()) return;
  }
}

TEST(NodePlanTest, ManyNodes) {
  std::mt19937_64 random(TestSeed());
  for (const uint32_t nodes : {16U, 23U}) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (const OpKind kind : kKinds) {
        if (!policy::HasPlan(algorithm, kind)) continue;
        ClusterCase c;
        c.algorithm = algorithm;
        c.op = {.kind = kind, .count = 100};
        c.node_of_rank.resize(nodes);
        std::iota(c.node_of_rank.begin(), c.node_of_rank.end(), 0);
        c.seed = random();
        ExpectRight(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// One thread runs every case.
TEST(NodePlanTest, LargeSlicesStreamPastTheCaches) {
  std::mt19937_64 random(TestSeed());
  uint64_t cases = TestSeed();  // of the thinned, others every time
  for (const Algorithm algorithm : kAlgorithms) {
    for (const OpKind kind : kKinds) {
      if (!policy::HasPlan(algorithm, kind)) continue;
      if (cases++ % kThinning != 0) continue;
      ClusterCase c;
      c.algorithm = algorithm;
      const bool all_whole = kind == OpKind::kAllReduce || kind == OpKind::kBroadcast;
      c.op = {.kind = kind, .count = uint64_t{540'001} / (all_whole ? 1U : 3U)};
      c.node_of_rank = {0, 1, 0};
      c.sparsity = random() % 2 == 0 ? 0.2 : 0.99;
      c.in_place = random();
      c.remote = random() & random();
      c.slice_bytes = 0;
      c.open_lanes = 0;
      c.seed = random();
      ExpectRight(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NodePlanTest, ThreadsOnEveryNode) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    for (const OpKind kind : kKinds) {
      if (!policy::HasPlan(algorithm, kind)) continue;
      ClusterCase c;
      c.algorithm = algorithm;
      c.op = {.kind = kind, .dtype = DType::kBfloat16, .count = 3000};
      c.node_of_rank = {0, 1, 2, 0, 1};
      c.room_frames = 1 + random() % 5;
      c.seed = random();
      SCOPED_TRACE(Describe(c));
      const std::vector<Bytes> inputs = InputsOf(c);
      Cluster cluster(c, inputs);
      cluster.RunThreads(2);
      ExpectResults(c, inputs, cluster);
      if (HasFatalFailure()) return;
    }
  }
}

// A root only sends: without room at its links it would send all at once.
TEST(NodePlanTest, WhatWaitsForALinkIsBounded) {
  ClusterCase c;
  c.algorithm = Algorithm::kTree;
  c.op = {.kind = OpKind::kBroadcast, .count = 100'000};
  c.room_frames = 4;
  c.seed = TestSeed();
  const std::vector<Bytes> inputs = InputsOf(c);
  Cluster cluster(c, inputs);
  ASSERT_TRUE(cluster.Alternate());
  ExpectResults(c, inputs, cluster);
  EXPECT_LE(cluster.net().most_waiting(), 4);
  c.room_frames = 0;
  Cluster unbounded(c, inputs);
  ASSERT_TRUE(unbounded.Alternate());
  EXPECT_GT(unbounded.net().most_waiting(), 100);
}

TEST(NodePlanTest, ADeadRankIsTheCulpritOnEveryOtherNode) {
  const uint64_t seed = TestSeed();
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::kTree) continue;  // where not everybody needs everybody
    for (uint64_t after = 0; after < 30; after += 3) {
      ClusterCase c;
      c.algorithm = algorithm;
      c.op = {.kind = policy::HasPlan(algorithm, OpKind::kAllReduce) ? OpKind::kAllReduce
                                                                     : OpKind::kAllGather,
              .count = 5000};
      c.node_of_rank = {0, 1, 2, 1};
      c.seed = seed;
      SCOPED_TRACE(absl::StrCat(Describe(c), " after ", after));
      Cluster cluster(c, InputsOf(c));
      cluster.net().Kill(2, after, absl::UnavailableError("rank 2: connection lost"));
      cluster.Alternate();
      for (const uint32_t node : {0U, 1U}) {
        ASSERT_EQ(cluster.box(node).calls(), 1) << "node " << node;
        EXPECT_EQ(cluster.box(node).result()->culprit_rank, 2);
        EXPECT_EQ(cluster.box(node).result()->status.code(), absl::StatusCode::kUnavailable);
      }
      if (cluster.box(2).calls() == 0) cluster.task(2).Cancel(absl::AbortedError("dead"), 2);
    }
  }
}

TEST(NodePlanTest, CancelAtAnyMomentEndsTheNodeAndLetsGo) {
  const uint64_t seed = TestSeed();
  for (uint64_t moment = 0; moment < 40; ++moment) {
    ClusterCase c;
    c.algorithm = kAlgorithms[moment % 5];
    c.op = {.count = 3000};
    c.node_of_rank = {0, 1, 2};
    c.seed = seed + moment;
    Cluster cluster(c, InputsOf(c));
    spccl::testing::ScratchMemory scratch;
    for (uint64_t i = 0; i < moment; ++i) {
      for (uint32_t node = 0; node < 3; ++node) cluster.task(node).RunOne(scratch.span());
      cluster.net().DeliverOne();
    }
    for (uint32_t node = 0; node < 3; ++node) {
      cluster.task(node).Cancel(absl::AbortedError("abort"), 1);
      ASSERT_EQ(cluster.box(node).calls(), 1);
      EXPECT_EQ(cluster.box(node).result()->culprit_rank, 1);
      EXPECT_EQ(cluster.task(node).RunOne(scratch.span()), Progress::kDone);
    }
    EXPECT_FALSE(cluster.net().DeliverOne());
  }
}

TEST(NodePlanTest, EachSendStepTellsWhatWasDecided) {
  ClusterCase c;
  c.algorithm = Algorithm::kRecursiveDoubling;
  c.op = {.count = 8192};
  c.node_of_rank = {0, 1, 2, 3};
  c.settings.codec = Codec::kPici;
  c.sparsity = 0.95;
  c.slice_bytes = 8192 * 4;
  c.seed = TestSeed();
  Cluster cluster(c, InputsOf(c));
  ASSERT_TRUE(cluster.Alternate());
  const OpStats stats = cluster.Stats();
  ASSERT_EQ(stats.send_steps.size(), 2);
  const SendStepStats &first = stats.send_steps[0], &second = stats.send_steps[1];
  EXPECT_EQ(first.decisions[static_cast<size_t>(Reason::kFirst)], 4);
  EXPECT_EQ(first.link, policy::Link::kInter);
  EXPECT_NEAR(first.sparsity_sum / static_cast<double>(first.sparsity_count), 0.95, 0.02);
  EXPECT_EQ(second.decisions[static_cast<size_t>(Reason::kKnownAbove)], 4);
  EXPECT_EQ(second.threshold, policy::kPiciThresholds.inter);
  EXPECT_EQ(first.formats[static_cast<size_t>(Format::kPici)], 4);
  EXPECT_GT(first.encode_ns + second.encode_ns, 0);
  EXPECT_LT(second.wire_bytes, second.dense_bytes);
  EXPECT_GT(stats.encode_ns, 0);
  EXPECT_GT(stats.reduce_ns, 0);
  // Each node compresses all elements and takes one frame of each step in.
  const auto pici = static_cast<size_t>(Format::kPici);
  EXPECT_EQ(stats.encoded[pici].dense_bytes, 2 * 4 * 8192 * 4);
  EXPECT_GT(stats.encoded[pici].ns, 0);
  EXPECT_LE(stats.encoded[pici].ns, stats.encode_ns);
  EXPECT_EQ(stats.taken_in[pici].dense_bytes, 2 * 4 * 8192 * 4);
  EXPECT_GT(stats.taken_in[pici].ns, 0);
  EXPECT_LE(stats.taken_in[pici].ns, stats.reduce_ns);
  EXPECT_EQ(stats.encoded[static_cast<size_t>(Format::kDense)].dense_bytes, 0);
  const auto inter = static_cast<size_t>(policy::Link::kInter);
  EXPECT_EQ(stats.wire_bytes_by_link[inter], stats.wire_bytes);
  EXPECT_EQ(stats.wire_bytes_by_link[static_cast<size_t>(policy::Link::kIntra)], 0);
}

}  // namespace
}  // namespace spccl::runtime
