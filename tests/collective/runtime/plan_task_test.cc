#include "collective/runtime/host/plan_task.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collective/plan/ring.h"
#include "collective/runtime/make_task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/seed.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using policy::Codec;
using policy::Reason;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::FirstRank;
using spccl::testing::OracleNonzeros;
using spccl::testing::RandomElements;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;

constexpr Codec kSparseCodecs[] = {Codec::kPici, Codec::kPiciColumn, Codec::kCoo};

struct Case {
  OpDesc op;
  uint32_t ranks = 2;
  Codec codec = Codec::kPici;
  policy::Thresholds thresholds = policy::kPiciThresholds;
  double sparsity = 0.9;
  bool specials = false;
  uint64_t in_place = 0, remote = 0;
  size_t slice_bytes = 1024;
  int threads = 1;
  std::vector<uint32_t> nodes;
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.op.kind)), " ", std::string(NameOf(c.op.dtype)), " ",
                      std::string(NameOf(c.op.redop)), " count ", c.op.count, " root ", c.op.root,
                      " ranks ", c.ranks, " codec ", std::string(policy::NameOf(c.codec)),
                      " sparsity ", c.sparsity, " in place ", c.in_place, " remote ", c.remote,
                      " slice ", c.slice_bytes, " threads ", c.threads);
}

std::vector<Bytes> Inputs(const Case& c, std::mt19937_64* random) {
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks; ++rank) {
    inputs.push_back(
        RandomElements(c.op.dtype, SendElements(c.op, c.ranks), c.sparsity, c.specials, random));
  }
  return inputs;
}

// A ring combines chunk c in ring order from rank c + 1 on.
FirstRank RingOrder(const OpDesc& op, uint32_t ranks) {
  if (op.kind == OpKind::kReduceScatter) {
    return
        [=](uint64_t element) { return static_cast<uint32_t>((element / op.count + 1) % ranks); };
  }
  std::vector<uint64_t> ends;
  for (uint32_t chunk = 0; chunk < ranks; ++chunk) {
    const plan::Range range = plan::ChunkOf(op.count, ranks, chunk);
    ends.push_back(range.first + range.elements);
  }
  return [ends, ranks](uint64_t element) {
    const auto chunk = std::upper_bound(ends.begin(), ends.end(), element) - ends.begin();
    return (static_cast<uint32_t>(chunk) + 1) % ranks;
  };
}

struct Outcome {
  std::vector<Bytes> received;
  OpStats stats;
};

void RunRing(const Case& c, const std::vector<Bytes>& inputs, Outcome* outcome) {
  RankMemory memory(c.op, inputs, c.in_place, c.remote);
  policy::Settings settings{.algorithm = policy::Algorithm::kRing, .codec = c.codec};
  settings.pici = settings.coo = c.thresholds;
  ResultBox box;
  auto task = MakeTask(c.op, memory.buffers(), settings,
                       {.node_of_rank = c.nodes, .slice_bytes = c.slice_bytes}, box.Fn());
  ASSERT_TRUE(task.ok()) << task.status();
  RunTask(task->get(), c.threads);
  ASSERT_EQ(box.calls(), 1);
  ASSERT_TRUE(box.result()->status.ok()) << box.result()->status;
  EXPECT_EQ(box.result()->culprit_rank, -1);
  for (uint32_t rank = 0; rank < c.ranks; ++rank) {
    outcome->received.push_back(memory.Received(rank));
  }
  outcome->stats = box.result()->stats;
}

// Every send has one decision, one format, one link; sparse frames are no larger than dense ones.
void ExpectConsistent(const Case& c, const OpStats& stats) {
  const auto sum = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  const uint64_t sends = sum(stats.sends_by_format);
  EXPECT_EQ(sum(stats.decisions[0]) + sum(stats.decisions[1]), sends);
  EXPECT_EQ(sum(stats.sends_by_link), sends);
  EXPECT_LE(stats.wire_bytes, stats.dense_bytes);
  if (c.codec == Codec::kDense) {
    EXPECT_EQ(stats.wire_bytes, stats.dense_bytes);
  }
}

// The ring's result equals the oracle's under ==, with frames dense and with frames as the case
// says; the inputs hold zeros of both signs.
void ExpectRight(const Case& c, std::mt19937_64* random) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = Inputs(c, random);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs, RingOrder(c.op, c.ranks));
  Case dense = c;
  dense.codec = Codec::kDense;
  for (const Case& one : {dense, c}) {
    Outcome outcome;
    RunRing(one, inputs, &outcome);
    if (::testing::Test::HasFatalFailure()) return;
    ExpectConsistent(one, outcome.stats);
    for (uint32_t rank = 0; rank < c.ranks; ++rank) {
      const auto difference = FirstDifference(c.op.dtype, outcome.received[rank], expected[rank]);
      ASSERT_FALSE(difference.has_value())
          << policy::NameOf(one.codec) << ": rank " << rank << " element " << *difference;
    }
  }
}

TEST(PlanTaskTest, EveryTypeAndReductionDenseAndSparse) {
  std::mt19937_64 random(TestSeed());
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
        Case c;
        c.op = {.kind = kind,
                .dtype = static_cast<DType>(dtype),
                .redop = static_cast<RedOp>(redop),
                .count = 1 + random() % 1500};
        c.ranks = static_cast<uint32_t>(2 + random() % 4);
        c.codec = kSparseCodecs[random() % 3];
        c.in_place = random();
        c.remote = random() & random();
        ExpectRight(c, &random);
      }
    }
  }
}

// Sampled: operations x types x sparsities x ranks x codecs x thresholds x odd counts x slices.
TEST(PlanTaskTest, SparseEqualsDenseProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr double kSparsities[] = {0, 0.3, 0.5, 0.9, 0.99, 1};
  constexpr uint64_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 255, 1023, 4095, 4096, 4097, 9001};
  for (int round = 0; round < 200; ++round) {
    Case c;
    c.op = {.kind = static_cast<OpKind>(random() % kOpKindCount),
            .dtype = static_cast<DType>(random() % kDTypeCount),
            .redop = random() % 3 == 0 ? static_cast<RedOp>(random() % kRedOpCount) : RedOp::kSum,
            .count = kCounts[random() % std::size(kCounts)]};
    c.ranks = static_cast<uint32_t>(1 + random() % 9);
    c.op.root = static_cast<uint32_t>(random() % c.ranks);
    c.codec = kSparseCodecs[random() % 3];
    c.sparsity = kSparsities[random() % std::size(kSparsities)];
    c.thresholds = {.intra = static_cast<double>(random() % 11) / 10,
                    .inter = static_cast<double>(random() % 11) / 10,
                    .ag = static_cast<double>(random() % 11) / 10};
    c.specials = c.op.redop == RedOp::kSum && random() % 2 == 0;
    c.in_place = random();
    c.remote = random() & random();
    c.slice_bytes = size_t{64} << (random() % 9);
    c.threads = static_cast<int>(1 + random() % 3);
    if (random() % 2 == 0) {
      for (uint32_t rank = 0; rank < c.ranks; ++rank) {
        c.nodes.push_back(static_cast<uint32_t>(random() % 2));
      }
    }
    ExpectRight(c, &random);
    if (HasFatalFailure()) return;
  }
}

TEST(PlanTaskTest, SixtyFourRanks) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    if (!policy::HasPlan(policy::Algorithm::kRing, static_cast<OpKind>(kind))) continue;
    Case c;
    const bool shares = kind < 2;  // count is that of one rank's share
    c.op = {.kind = static_cast<OpKind>(kind), .root = 17, .count = shares ? 41U : 3001U};
    c.slice_bytes = 128;
    c.ranks = 64;
    c.sparsity = 0.99;
    c.threads = 3;
    ExpectRight(c, &random);
  }
}

TEST(PlanTaskTest, LargeSlicesByDefault) {
  std::mt19937_64 random(TestSeed());
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    if (!policy::HasPlan(policy::Algorithm::kRing, static_cast<OpKind>(kind))) continue;
    Case c;
    c.op = {.kind = static_cast<OpKind>(kind), .dtype = DType::kFloat16, .count = 150'003};
    c.ranks = 3;
    c.slice_bytes = 0;
    c.threads = 2;
    c.remote = 0b010;
    ExpectRight(c, &random);
  }
}

// One lane, two ranks, every element as told: the decisions of section IV.C, and their counts.
TEST(PlanTaskTest, DecisionsAreCountedByPhaseAndReason) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 8192};
  c.ranks = 4;
  c.sparsity = 0.95;
  c.slice_bytes = 8192 * 4;
  const std::vector<Bytes> inputs = Inputs(c, &random);
  Outcome outcome;
  RunRing(c, inputs, &outcome);
  const auto count = [&](Phase phase, Reason reason) {
    return outcome.stats.decisions[static_cast<size_t>(phase)][static_cast<size_t>(reason)];
  };
  // A rank sends three frames in each phase; the density stays below 0.2, far below intra's 0.4.
  EXPECT_EQ(count(Phase::kReduceScatter, Reason::kFirst), 4U);
  EXPECT_EQ(count(Phase::kReduceScatter, Reason::kKnownAbove), 8U);
  EXPECT_EQ(count(Phase::kAllGather, Reason::kKnownAbove), 4U);
  EXPECT_EQ(count(Phase::kAllGather, Reason::kForwarded), 8U);
  EXPECT_EQ(outcome.stats.sends_by_format[static_cast<size_t>(Format::kPici)], 24U);
  EXPECT_EQ(outcome.stats.sends_by_link[0], 24U);
  // The result was counted on its way, by every owner once.
  EXPECT_EQ(outcome.stats.result_elements, c.op.count);
  EXPECT_EQ(outcome.stats.result_nnz, OracleNonzeros(c.op.dtype, outcome.received[0]));
  EXPECT_LT(outcome.stats.wire_bytes * 4, outcome.stats.dense_bytes);
}

TEST(PlanTaskTest, GoesDenseInTheReduceScatterAndSparseAgainInTheAllGather) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 8192};
  c.ranks = 4;
  c.sparsity = 0.7;  // 1 - d: 0.7, then 0.7^2 = 0.49 <= 0.6, and 0.7^4 = 0.24 > 0.1 at the end
  c.slice_bytes = 8192 * 4;
  Outcome outcome;
  RunRing(c, Inputs(c, &random), &outcome);
  const auto& rs = outcome.stats.decisions[0];
  const auto& ag = outcome.stats.decisions[1];
  EXPECT_EQ(rs[static_cast<size_t>(Reason::kFirst)], 4U);
  EXPECT_EQ(rs[static_cast<size_t>(Reason::kKnownAbove)], 4U);
  EXPECT_EQ(rs[static_cast<size_t>(Reason::kKnownBelow)], 4U);
  EXPECT_EQ(ag[static_cast<size_t>(Reason::kKnownAbove)], 4U);
  EXPECT_EQ(ag[static_cast<size_t>(Reason::kForwarded)], 8U);
}

TEST(PlanTaskTest, ACompressionThatGainsNothingTravelsDense) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.kind = OpKind::kAllGather, .count = 4096};
  c.ranks = 3;
  c.sparsity = 0;
  c.slice_bytes = 4096 * 4;
  Outcome outcome;
  RunRing(c, Inputs(c, &random), &outcome);
  EXPECT_EQ(outcome.stats.decisions[1][static_cast<size_t>(Reason::kNoGain)], 3U);
  EXPECT_EQ(outcome.stats.sends_by_format[0], 6U);
  EXPECT_EQ(outcome.stats.wire_bytes, outcome.stats.dense_bytes);
}

TEST(PlanTaskTest, LinksFollowTheNodes) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 1024};
  c.ranks = 4;
  c.nodes = {7, 7, 9, 9};  // two of the ring's four links are between nodes
  c.slice_bytes = 4096;
  Outcome outcome;
  RunRing(c, Inputs(c, &random), &outcome);
  EXPECT_EQ(outcome.stats.sends_by_link[0], 12U);
  EXPECT_EQ(outcome.stats.sends_by_link[1], 12U);
}

TEST(PlanTaskTest, CancelInTheMiddleEndsOnceAndLetsGo) {
  for (int round = 0; round < 100; ++round) {
    const OpDesc op{.count = 16384};
    auto memory =
        std::make_unique<RankMemory>(op, std::vector<Bytes>(3, Bytes(4 * op.count)), 0, round % 8);
    ResultBox box;
    auto task = MakeTask(op, memory->buffers(), {.algorithm = policy::Algorithm::kRing},
                         {.node_of_rank = {}, .slice_bytes = 1024},
                         [&, done = box.Fn()](const OpResult& result) {
                           memory.reset();
                           done(result);
                         });
    ASSERT_TRUE(task.ok());
    std::thread canceller([&] { (*task)->Cancel(absl::AbortedError("enough"), 2); });
    RunTask(task->get(), 2);
    canceller.join();
    ASSERT_EQ(box.calls(), 1);
    if (!box.result()->status.ok()) {
      EXPECT_EQ(box.result()->status, absl::AbortedError("enough"));
      EXPECT_EQ(box.result()->culprit_rank, 2);
    }
  }
}

TEST(PlanTaskTest, CancelBeforeTheStartAndAfterTheEnd) {
  const OpDesc op{.count = 1000};
  RankMemory memory(op, std::vector<Bytes>(2, Bytes(4000)), 0, 0);
  ResultBox box;
  auto task = MakeTask(op, memory.buffers(), {.algorithm = policy::Algorithm::kRing}, {}, box.Fn());
  (*task)->Cancel(absl::AbortedError("rank 1 died"), 1);
  ASSERT_EQ(box.calls(), 1);
  EXPECT_EQ(box.result()->culprit_rank, 1);
  (*task)->Cancel(absl::AbortedError("again"), 0);
  RunTask(task->get(), 1);
  EXPECT_EQ(box.calls(), 1);
}

TEST(PlanTaskTest, AMissingBufferNamesItsRank) {
  const OpDesc op{.count = 4096};
  RankMemory memory(op, std::vector<Bytes>(3, Bytes(4 * op.count)), 0, 0);
  for (const bool in_send : {true, false}) {
    std::vector<RankBuffers> buffers = memory.buffers();
    (in_send ? buffers[2].send : buffers[2].recv) = MemoryView::Remote(testing::OwnMemory(), 0x10);
    ResultBox box;
    auto task = MakeTask(op, buffers, {.algorithm = policy::Algorithm::kRing}, {}, box.Fn());
    RunTask(task->get(), 2);
    ASSERT_EQ(box.calls(), 1);
    EXPECT_EQ(box.result()->culprit_rank, 2);
    EXPECT_THAT(std::string(box.result()->status.message()), ::testing::HasSubstr("rank 2"));
    EXPECT_THAT(std::string(box.result()->status.message()), ::testing::HasSubstr("0x"));
  }
}

}  // namespace
}  // namespace spccl::runtime
