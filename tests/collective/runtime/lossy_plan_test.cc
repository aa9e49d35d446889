// Lossy sends through whole plans: the bounds that docs/lossy.md derives hold end to end, all ranks
// come to the same, and what is not finite arrives as it is.
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collective/plan/make_plan.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/transport/local/local_transport.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/seed.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using spccl::testing::Bytes;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;

struct Case {
  Algorithm algorithm = Algorithm::kTwoLevelRing;
  OpDesc op;
  std::vector<uint32_t> nodes;  // of each rank
  policy::Lossy lossy;
  uint64_t in_place = 0, remote = 0;
  size_t slice_bytes = 0;
  int threads = 1;

  uint32_t ranks() const { return static_cast<uint32_t>(nodes.size()); }
  uint32_t participants() const {
    return algorithm == Algorithm::kRing ? ranks() : nodes.back() + 1;
  }
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.algorithm)), " ", std::string(NameOf(c.op.kind)), " ",
                      std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " root ", c.op.root, " ranks ", c.ranks(), " on ",
                      c.nodes.back() + 1, " nodes, ", policy::TextOf(c.lossy), " in place ",
                      c.in_place, " remote ", c.remote, " slice ", c.slice_bytes);
}

struct Outcome {
  std::vector<Bytes> received;
  OpStats stats;
};

void RunCase(const Case& c, const std::vector<Bytes>& inputs, Outcome* outcome) {
  RankMemory memory(c.op, inputs, c.in_place, c.remote);
  PlanTask::Options options;
  options.op = c.op;
  options.plan = Prepare(plan::MakePlan(c.algorithm, c.op.kind, c.nodes, c.op.root));
  options.ranks = memory.buffers();
  options.node_of_rank = c.nodes;
  options.settings.lossy = c.lossy;
  options.slice_bytes = c.slice_bytes;
  options.transport = std::make_unique<transport::LocalTransport>();
  options.pool = &transport::FramePool::Shared();
  ResultBox box;
  PlanTask task(std::move(options), box.Fn());
  RunTask(&task, c.threads);
  ASSERT_EQ(box.calls(), 1);
  ASSERT_TRUE(box.result()->status.ok()) << box.result()->status;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    outcome->received.push_back(memory.Received(rank));
  }
  outcome->stats = box.result()->stats;
}

// How many bounds the error of a sum may be: docs/lossy.md.
uint32_t Compressions(const Case& c) {
  const uint32_t participants = c.participants();
  if (participants == 1) return 0;
  if (!Reduces(c.op.kind)) return 1;
  if (c.algorithm == Algorithm::kRecursiveDoubling) {
    const uint32_t core = std::bit_floor(participants);
    return participants - core + 2 * (core - 1);
  }
  return participants - 1 + (c.op.kind == OpKind::kAllReduce ? 1 : 0);
}

template <class T>
T At(const Bytes& bytes, uint64_t element) {
  T value;
  std::memcpy(&value, bytes.data() + element * sizeof(T), sizeof(T));
  return value;
}

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Smooth, rough, or at the far end of their quanta, which is the worst that a sum can meet.
template <class T>
std::vector<Bytes> Inputs(const Case& c, int kind, std::mt19937_64* random) {
  std::vector<Bytes> inputs;
  std::normal_distribution<double> noise;
  const double quantum = 2 * c.lossy.bound.value * 255 / 256;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    std::vector<T> x(SendElements(c.op, c.ranks()));
    for (uint64_t i = 0; i < x.size(); ++i) {
      const double smooth = std::sin(static_cast<double>(i + 7 * rank) / 40);
      const double worst = (static_cast<double>((*random)() % 50) + 0.4999) * quantum;
      x[i] = static_cast<T>(kind == 0 ? smooth : kind == 1 ? noise(*random) : worst);
      if (kind == 1 && (*random)() % 300 == 0) x[i] = std::numeric_limits<T>::infinity();
      if (kind == 1 && (*random)() % 300 == 0) x[i] = std::numeric_limits<T>::quiet_NaN();
    }
    inputs.push_back(BytesOf(x));
  }
  return inputs;
}

// One element of the exact result, and the sum of magnitudes that its rounding hangs on.
struct Exact {
  long double value = 0;
  long double magnitudes = 0;
};

template <class T>
Exact Reduced(const Case& c, const std::vector<Bytes>& inputs, uint64_t element) {
  Exact exact;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const long double x = At<T>(inputs[rank], element);
    exact.magnitudes += std::fabs(x);
    if (rank == 0) {
      exact.value = x;
    } else if (c.op.redop == RedOp::kMax) {
      exact.value = std::max(exact.value, x);
    } else if (c.op.redop == RedOp::kMin) {
      exact.value = std::min(exact.value, x);
    } else {
      exact.value += x;
    }
  }
  if (c.op.redop == RedOp::kAvg) exact.value /= c.ranks();
  return exact;
}

template <class T>
Exact Expected(const Case& c, const std::vector<Bytes>& inputs, uint32_t rank, uint64_t element) {
  switch (c.op.kind) {
    case OpKind::kAllReduce:
      return Reduced<T>(c, inputs, element);
    case OpKind::kReduceScatter:
      return Reduced<T>(c, inputs, rank * c.op.count + element);
    case OpKind::kAllGather:
      return {At<T>(inputs[element / c.op.count], element % c.op.count)};
    case OpKind::kBroadcast:
      return {At<T>(inputs[c.op.root], element)};
    case OpKind::kScatter:
      return {At<T>(inputs[c.op.root], rank * c.op.count + element)};
  }
  return {};
}

// The largest error, in bounds.
template <class T>
double ExpectWithinBound(const Case& c, const std::vector<Bytes>& inputs,
                         const std::vector<Bytes>& received) {
  const double bound = c.lossy.bound.value;
  const uint32_t all = Compressions(c);
  const bool gathers =
      c.op.kind == OpKind::kAllReduce && c.algorithm != Algorithm::kRecursiveDoubling && all > 0;
  double allowed = all * bound;
  if (c.op.redop == RedOp::kAvg && Reduces(c.op.kind)) {
    allowed = (all - gathers) * bound / c.ranks() + gathers * bound;
  }
  // Of a maximum that a NaN takes part in, any number is right.
  const bool picks = Reduces(c.op.kind) && (c.op.redop == RedOp::kMax || c.op.redop == RedOp::kMin);
  double largest = 0;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    for (uint64_t i = 0; i < received[rank].size() / sizeof(T); ++i) {
      const Exact exact = Expected<T>(c, inputs, rank, i);
      const long double got = At<T>(received[rank], i);
      if (picks && std::isnan(exact.magnitudes)) continue;
      if (!std::isfinite(exact.value)) {
        EXPECT_TRUE(std::isnan(exact.value) ? std::isnan(got) : got == exact.value);
        continue;
      }
      const long double error = std::fabs(got - exact.value);
      // What sums of floats are rounded by, of what they and the bounds add up to.
      const long double rounding = !Reduces(c.op.kind) || picks
                                       ? 0
                                       : 2 * c.ranks() * std::numeric_limits<T>::epsilon() *
                                             (exact.magnitudes + all * bound);
      EXPECT_LE(error, allowed + rounding)
          << "rank " << rank << " element " << i << ": " << got << ", exactly " << exact.value;
      largest = std::max(largest, static_cast<double>(error / bound));
      if (::testing::Test::HasFailure()) return largest;
    }
  }
  return largest;
}

void ExpectAllAlike(const Case& c, const std::vector<Bytes>& received) {
  if (c.op.kind == OpKind::kReduceScatter || c.op.kind == OpKind::kScatter) return;
  for (uint32_t rank = 1; rank < c.ranks(); ++rank) {
    EXPECT_TRUE(received[rank] == received[0]) << "rank " << rank;
  }
}

template <class T>
double RunAndCheck(const Case& c, int kind, std::mt19937_64* random) {
  SCOPED_TRACE(absl::StrCat(Describe(c), " inputs ", kind));
  const std::vector<Bytes> inputs = Inputs<T>(c, kind, random);
  Outcome outcome;
  RunCase(c, inputs, &outcome);
  if (::testing::Test::HasFatalFailure()) return 0;
  const auto lossy = static_cast<size_t>(policy::Reason::kLossy);
  if (c.participants() > 1 && c.op.count > 3000 && kind == 0) {
    EXPECT_GT(outcome.stats.decisions[0][lossy] + outcome.stats.decisions[1][lossy], 0u);
    EXPECT_LT(outcome.stats.wire_bytes, outcome.stats.dense_bytes);
  }
  ExpectAllAlike(c, outcome.received);
  return ExpectWithinBound<T>(c, inputs, outcome.received);
}

std::vector<uint32_t> OneRankANode(uint32_t ranks) {
  std::vector<uint32_t> nodes(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) nodes[rank] = rank;
  return nodes;
}

constexpr Algorithm kAlgorithms[] = {
    Algorithm::kRing, Algorithm::kTwoLevelRing,    Algorithm::kSplit, Algorithm::kRecursiveDoubling,
    Algorithm::kTree, Algorithm::kHalvingDoubling, Algorithm::kDirect};

TEST(LossyPlanTest, EveryPlanHoldsItsBoundForEveryNumberOfParticipants) {
  std::mt19937_64 random(TestSeed());
  for (uint32_t ranks = 2; ranks <= 16; ++ranks) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (int kind = 0; kind < kOpKindCount; ++kind) {
        Case c;
        c.op.kind = static_cast<OpKind>(kind);
        if (!HasPlan(algorithm, c.op.kind)) continue;
        c.algorithm = algorithm;
        c.nodes = OneRankANode(ranks);
        c.op.count = 1 + random() % 700;
        c.op.root = static_cast<uint32_t>(random() % ranks);
        c.lossy = {.format = Format::kErrorBound,
                   .bound = {std::exp2(-static_cast<int>(random() % 14)), false}};
        c.in_place = random();
        c.remote = random() & random();
        c.slice_bytes = size_t{256} << (random() % 6);
        c.threads = static_cast<int>(1 + random() % 2);
        RunAndCheck<float>(c, static_cast<int>(random() % 3), &random);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LossyPlanTest, TypesReductionsAndSharedNodes) {
  std::mt19937_64 random(TestSeed());
  constexpr RedOp kRedOps[] = {RedOp::kSum, RedOp::kAvg, RedOp::kMax, RedOp::kMin};
  for (int round = 0; round < 150; ++round) {
    Case c;
    c.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
    c.op.kind = static_cast<OpKind>(random() % kOpKindCount);
    if (!HasPlan(c.algorithm, c.op.kind)) continue;
    const uint64_t nodes = 1 + random() % 6;
    for (uint32_t node = 0; node < nodes; ++node) {
      c.nodes.insert(c.nodes.end(), 1 + random() % 3, node);
    }
    c.op.redop = kRedOps[random() % std::size(kRedOps)];
    c.op.dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
    c.op.count = random() % 5000;
    c.op.root = static_cast<uint32_t>(random() % c.ranks());
    c.lossy = {.format = Format::kErrorBound,
               .bound = {std::exp2(-static_cast<int>(random() % 12)), false}};
    c.in_place = random();
    c.remote = random() & random();
    c.slice_bytes = size_t{1024} << (random() % 6);
    c.threads = static_cast<int>(1 + random() % 3);
    const int kind = static_cast<int>(random() % 3);
    if (c.op.dtype == DType::kFloat32) {
      RunAndCheck<float>(c, kind, &random);
    } else {
      RunAndCheck<double>(c, kind, &random);
    }
    if (HasFailure()) return;
  }
}

// The bounds are not idle: inputs at the far end of their quanta come close to them.
TEST(LossyPlanTest, TheBoundIsMet) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.kind = OpKind::kAllReduce, .dtype = DType::kFloat64, .count = 4000};
  c.nodes = OneRankANode(8);
  c.lossy = {.format = Format::kErrorBound, .bound = {0.125, false}};
  c.algorithm = Algorithm::kSplit;
  EXPECT_GT(RunAndCheck<double>(c, 2, &random), 6.5);  // of 8
  c.algorithm = Algorithm::kRecursiveDoubling;
  EXPECT_GT(RunAndCheck<double>(c, 2, &random), 7.5);  // of 14
}

// Relative to the largest magnitude that a frame holds: a sum of P inputs up to M and their errors.
TEST(LossyPlanTest, RelativeBounds) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : {Algorithm::kSplit, Algorithm::kTwoLevelRing}) {
    Case c;
    c.op = {.kind = OpKind::kAllReduce, .count = 20000};
    c.nodes = OneRankANode(5);
    c.algorithm = algorithm;
    c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, true}};
    const std::vector<Bytes> inputs = Inputs<float>(c, 0, &random);
    Outcome outcome;
    RunCase(c, inputs, &outcome);
    ExpectAllAlike(c, outcome.received);
    c.lossy.bound = {1e-3 * 5 * 1.01, false};  // M is 1
    ExpectWithinBound<float>(c, inputs, outcome.received);
  }
}

TEST(LossyPlanTest, OtherTypesAndProductsStayExact) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.nodes = OneRankANode(3);
  c.lossy = {.format = Format::kErrorBound, .bound = {0.5, false}};
  for (const OpDesc& op : {OpDesc{.dtype = DType::kInt32, .count = 5000},
                           OpDesc{.dtype = DType::kFloat16, .count = 5000},
                           OpDesc{.redop = RedOp::kProd, .count = 5000}}) {
    c.op = op;
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      inputs.push_back(
          spccl::testing::RandomElements(op.dtype, op.count, 0.2, /*specials=*/false, &random));
    }
    Outcome lossy, exact;
    RunCase(c, inputs, &lossy);
    Case plain = c;
    plain.lossy = {};
    RunCase(plain, inputs, &exact);
    EXPECT_TRUE(lossy.received == exact.received) << Describe(c);
    for (int format = kExactFormatCount; format < kFormatCount; ++format) {
      EXPECT_EQ(lossy.stats.sends_by_format[static_cast<size_t>(format)], 0u);
    }
  }
}

void RunQsgd(Format format, uint64_t seed, const std::vector<Bytes>& inputs, Outcome* outcome) {
  Case c;
  c.algorithm = Algorithm::kSplit;
  c.op = {.kind = OpKind::kAllReduce, .count = 40000};
  c.nodes = OneRankANode(4);
  c.lossy = {.format = format, .seed = seed};
  c.slice_bytes = size_t{32} << 10;
  RunCase(c, inputs, outcome);
  ExpectAllAlike(c, outcome->received);
}

// SparCML's dense phase: partial sums travel exactly, the results once, in levels.
TEST(LossyPlanTest, QsgdQuantisesTheAllGatherOfAnAllReduce) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<double> noise;
  std::vector<Bytes> inputs;
  std::vector<double> sums(40000);
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<float> x(sums.size());
    for (size_t i = 0; i < x.size(); ++i) sums[i] += x[i] = static_cast<float>(noise(random));
    inputs.push_back(BytesOf(x));
  }
  for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
    SCOPED_TRACE(NameOf(format));
    Outcome first, again, other;
    RunQsgd(format, 1, inputs, &first);
    RunQsgd(format, 1, inputs, &again);
    RunQsgd(format, 2, inputs, &other);
    EXPECT_TRUE(first.received == again.received) << "the seed makes it reproducible";
    EXPECT_FALSE(first.received == other.received);
    const OpStats& stats = first.stats;
    const auto lossy = static_cast<size_t>(policy::Reason::kLossy);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kReduceScatter)][lossy], 0u);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kAllGather)][lossy],
              stats.sends_by_format[static_cast<size_t>(format)]);
    EXPECT_GT(stats.sends_by_format[static_cast<size_t>(format)], 0u);
    const double scale = 12.0 / ((1 << (QsgdBits(format) - 1)) - 1);  // of sums of four up to 3
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(At<float>(first.received[0], i), sums[i], scale * 2);
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
