// Lossy sends through whole plans: the bounds that docs/lossy.md derives hold end to end, all ranks
// come to the same, and what is not finite arrives as it is.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/lossy_case.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

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

// How far a frame's elements may be off: partial sums, and final values or what is only moved.
struct FrameBounds {
  double partial = 0, final = 0;
};

// docs/lossy.md: the bound is of the frame's largest magnitude, `largest` that of the inputs.
FrameBounds BoundsOf(const Case& c, double largest) {
  const double value = c.lossy.bound.value;
  if (!c.lossy.bound.relative) return {value, value};
  // To first order there, and here with room for what the errors add to the magnitudes.
  const double of_one = value * largest * (1 + 2 * Compressions(c) * value);
  const bool adds = Reduces(c.op.kind) && (c.op.redop == RedOp::kSum || c.op.redop == RedOp::kAvg);
  return {.partial = adds ? of_one * c.ranks() : of_one,
          .final = adds && c.op.redop == RedOp::kSum ? of_one * c.ranks() : of_one};
}

// Smooth, rough, at the far end of their quanta, which is the worst that a sum can meet, or all of
// one sign, so that sums become as large as they may.
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
      const double large = 1 - 0.1 * static_cast<double>((*random)() % 1000) / 1000;
      x[i] = static_cast<T>(kind == 0   ? smooth
                            : kind == 1 ? noise(*random)
                            : kind == 2 ? worst
                                        : large);
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

template <class T>
double LargestOf(const std::vector<Bytes>& inputs) {
  double largest = 0;
  for (const Bytes& input : inputs) {
    for (uint64_t i = 0; i < input.size() / sizeof(T); ++i) {
      const double size = std::fabs(static_cast<double>(At<T>(input, i)));
      if (std::isfinite(size)) largest = std::max(largest, size);
    }
  }
  return largest;
}

// The largest error.
template <class T>
double ExpectWithinBound(const Case& c, const std::vector<Bytes>& inputs,
                         const std::vector<Bytes>& received) {
  const FrameBounds bounds = BoundsOf(c, LargestOf<T>(inputs));
  const uint32_t all = Compressions(c);
  const bool partial = Reduces(c.op.kind);
  const bool gathers =
      !partial || (c.op.kind == OpKind::kAllReduce && c.algorithm != Algorithm::kRecursiveDoubling);
  const uint32_t last = gathers && all > 0 ? 1 : 0;
  const double of_sums = (all - last) * bounds.partial;
  const bool divides = partial && c.op.redop == RedOp::kAvg;
  const double allowed = (divides ? of_sums / c.ranks() : of_sums) + last * bounds.final;
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
      const long double rounding =
          !Reduces(c.op.kind) || picks
              ? 0
              : 2 * c.ranks() * std::numeric_limits<T>::epsilon() * (exact.magnitudes + of_sums);
      EXPECT_LE(error, allowed + rounding)
          << "rank " << rank << " element " << i << ": " << got << ", exactly " << exact.value;
      largest = std::max(largest, static_cast<double>(error));
      if (::testing::Test::HasFailure()) return largest;
    }
  }
  return largest;
}

// Elements that the first slice of every part has, if there are as many.
uint64_t LeastSlice(const Case& c) {
  const bool whole = c.op.kind == OpKind::kAllReduce || c.op.kind == OpKind::kBroadcast;
  const uint64_t part =
      whole ? plan::ChunkOf(c.op.count, c.participants(), c.participants() - 1).elements
            : c.op.count;
  return std::min(part, c.slice_bytes / SizeOf(c.op.dtype));
}

template <class T>
double RunAndCheckAs(const Case& c, int kind, std::mt19937_64* random) {
  SCOPED_TRACE(absl::StrCat(Describe(c), " inputs ", kind));
  const std::vector<Bytes> inputs = Inputs<T>(c, kind, random);
  Outcome outcome;
  RunCase(c, inputs, &outcome);
  if (::testing::Test::HasFatalFailure()) return 0;
  const auto lossy = static_cast<size_t>(policy::Reason::kLossy);
  if (c.participants() > 1 && kind == 0 && LeastSlice(c) >= 64) {
    EXPECT_GT(outcome.stats.decisions[0][lossy] + outcome.stats.decisions[1][lossy], 0u);
    EXPECT_LT(outcome.stats.wire_bytes, outcome.stats.dense_bytes);
  }
  ExpectAllAlike(c, outcome.received);
  return ExpectWithinBound<T>(c, inputs, outcome.received);
}

double RunAndCheck(const Case& c, int kind, std::mt19937_64* random) {
  return c.op.dtype == DType::kFloat32 ? RunAndCheckAs<float>(c, kind, random)
                                       : RunAndCheckAs<double>(c, kind, random);
}

constexpr Algorithm kAlgorithms[] = {
    Algorithm::kRing, Algorithm::kTwoLevelRing,    Algorithm::kSplit, Algorithm::kRecursiveDoubling,
    Algorithm::kTree, Algorithm::kHalvingDoubling, Algorithm::kDirect};

constexpr RedOp kRedOps[] = {RedOp::kSum, RedOp::kAvg, RedOp::kMax, RedOp::kMin};

// One to three ranks each.
std::vector<uint32_t> SharedNodes(uint64_t count, std::mt19937_64* random) {
  std::vector<uint32_t> nodes;
  for (uint32_t node = 0; node < count; ++node) {
    nodes.insert(nodes.end(), 1 + (*random)() % 3, node);
  }
  return nodes;
}

TEST(LossyPlanTest, EveryPlanHoldsItsBoundForEveryNumberOfParticipants) {
  std::mt19937_64 random(TestSeed());
  int round = 0;
  const auto check = [&](Algorithm algorithm, const OpDesc& op, uint32_t ranks) {
    const int kind = round++ % 3;
    Case c;
    c.op = op;
    c.algorithm = algorithm;
    c.nodes = OneRankANode(ranks);
    c.op.dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
    // Smooth parts are long enough for frames to pay, which is then asked for.
    const bool whole = op.kind == OpKind::kAllReduce || op.kind == OpKind::kBroadcast;
    c.op.count = 1 + random() % (whole ? 700 : 150) + (kind == 0 ? whole ? 80 * ranks : 64 : 0);
    c.op.root = static_cast<uint32_t>(random() % ranks);
    c.lossy = {.format = Format::kErrorBound,
               .bound = {std::exp2(-static_cast<int>(random() % 14)), false}};
    c.in_place = random();
    c.remote = random() & random();
    c.slice_bytes = size_t{kind == 0 ? 512U : 256U} << (random() % 5);
    c.threads = static_cast<int>(1 + random() % 2);
    RunAndCheck(c, kind, &random);
  };
  for (uint32_t ranks = 2; ranks <= 16; ++ranks) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (int kind = 0; kind < kOpKindCount; ++kind) {
        OpDesc op{.kind = static_cast<OpKind>(kind)};
        if (!HasPlan(algorithm, op.kind)) continue;
        for (const RedOp redop : kRedOps) {
          op.redop = redop;
          if (Reduces(op.kind) || redop == RedOp::kSum) check(algorithm, op, ranks);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(LossyPlanTest, TypesReductionsAndSharedNodes) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 150; ++round) {
    Case c;
    c.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
    c.op.kind = static_cast<OpKind>(random() % kOpKindCount);
    if (!HasPlan(c.algorithm, c.op.kind)) continue;
    c.nodes = SharedNodes(1 + random() % 6, &random);
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
    RunAndCheck(c, kind, &random);
    if (HasFailure()) return;
  }
}

// The bounds of trees are not idle: inputs at the far end of their quanta come to them. In
// recursive doubling what is added from the second exchange on was decoded, and lies on quanta
// again: of 14 bounds, 8 are met.
TEST(LossyPlanTest, TheBoundIsMet) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTwoLevelRing, Algorithm::kSplit,
                                    Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling}) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
      if (!HasPlan(algorithm, kind)) continue;
      Case c;
      c.op = {.kind = kind, .dtype = DType::kFloat64, .count = 4000};
      c.algorithm = algorithm;
      c.nodes = OneRankANode(8);
      c.lossy = {.format = Format::kErrorBound, .bound = {0.125, false}};
      EXPECT_GT(RunAndCheck(c, 2, &random), 0.99 * 0.125 * (kind == OpKind::kAllReduce ? 8 : 7))
          << Describe(c);
    }
  }
}

// Relative to the largest magnitude that a frame holds, which of sums is that of all ranks' inputs.
TEST(LossyPlanTest, RelativeBounds) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      for (const RedOp redop : kRedOps) {
        Case c;
        c.op.kind = static_cast<OpKind>(kind);
        if (!HasPlan(algorithm, c.op.kind) || (!Reduces(c.op.kind) && redop != RedOp::kSum))
          continue;
        c.algorithm = algorithm;
        c.nodes = SharedNodes(2 + random() % 4, &random);
        c.op.redop = redop;
        c.op.dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
        c.op.count = 1 + random() % 3000;
        c.op.root = static_cast<uint32_t>(random() % c.ranks());
        c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, true}};
        c.slice_bytes = size_t{1024} << (random() % 5);
        RunAndCheck(c, random() % 4 == 0 ? 0 : 3, &random);
        if (HasFailure()) return;
      }
    }
  }
}

// Two nodes whose ranks' sums are four and eight times as large as an input: a frame of each.
TEST(LossyPlanTest, RelativeBoundsGrowWithTheRanksOfANode) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.kind = OpKind::kAllReduce, .dtype = DType::kFloat64, .count = 20000};
  c.nodes = {0, 0, 0, 0, 1, 1, 1, 1};
  c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, true}};
  for (const Algorithm algorithm : {Algorithm::kSplit, Algorithm::kTwoLevelRing}) {
    c.algorithm = algorithm;
    EXPECT_GT(RunAndCheck(c, 3, &random), 1e-3 * 9);  // of 16; 4 + 8 can be
  }
}

// An index, bases and widths take 0.375 bits an element of float32, where exact frames of so many
// zeros take less. Whether they do is counted: of most of these sends no density is known before.
TEST(LossyPlanTest, WhatIsSmallerExactlyGoesExactly) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      for (const policy::Codec codec : {policy::Codec::kAuto, policy::Codec::kGap}) {
        Case c;
        c.op = {.kind = static_cast<OpKind>(kind), .count = 30000};
        if (!HasPlan(algorithm, c.op.kind)) continue;
        c.algorithm = algorithm;
        c.nodes = OneRankANode(4);
        c.codec = codec;
        c.slice_bytes = size_t{32} << 10;
        const double sparsity = codec == policy::Codec::kGap ? 0.99 : 0.999;
        std::vector<Bytes> inputs;
        for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
          inputs.push_back(spccl::testing::RandomElements(c.op.dtype, SendElements(c.op, c.ranks()),
                                                          sparsity, /*specials=*/false, &random));
        }
        Outcome exact, lossy;
        RunCase(c, inputs, &exact);
        c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, false}};
        RunCase(c, inputs, &lossy);
        SCOPED_TRACE(Describe(c));
        EXPECT_EQ(lossy.stats.sends_by_format[static_cast<size_t>(Format::kErrorBound)], 0u);
        EXPECT_EQ(lossy.stats.wire_bytes, exact.stats.wire_bytes);
        EXPECT_TRUE(lossy.received == exact.received);
      }
    }
  }
}

// What plans and slices are chosen by is the density of all, not of what went exactly.
TEST(LossyPlanTest, WhatIsSentWithinABoundCountsAsInputToo) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kBroadcast}) {
      if (!HasPlan(algorithm, kind)) continue;
      Case c;
      c.algorithm = algorithm;
      c.op = {.kind = kind, .count = 40000};
      c.nodes = OneRankANode(2);
      c.slice_bytes = size_t{16} << 10;
      SCOPED_TRACE(Describe(c));
      std::vector<Bytes> inputs;
      for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
        inputs.push_back(
            spccl::testing::RandomElements(c.op.dtype, c.op.count, 0, /*specials=*/false, &random));
        std::fill_n(inputs.back().begin(), inputs.back().size() / 8, std::byte{0});
      }
      Outcome exact, lossy;
      RunCase(c, inputs, &exact);
      c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, false}};
      RunCase(c, inputs, &lossy);
      EXPECT_GT(lossy.stats.sends_by_format[static_cast<size_t>(Format::kErrorBound)], 0u);
      EXPECT_GT(exact.stats.input_elements, 0u);
      EXPECT_EQ(lossy.stats.input_elements, exact.stats.input_elements);
      EXPECT_EQ(lossy.stats.input_nnz, exact.stats.input_nnz);
    }
  }
}

TEST(LossyPlanTest, PartialSumsDoNotCountAsInput) {
  std::mt19937_64 random(TestSeed());
  for (const Algorithm algorithm : kAlgorithms) {
    Case c;
    c.algorithm = algorithm;
    c.op = {.kind = OpKind::kAllReduce, .count = 40000};
    if (!HasPlan(algorithm, c.op.kind)) continue;
    c.nodes = OneRankANode(5);
    c.lossy = {.format = Format::kErrorBound, .bound = {1e-3, false}};
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
      inputs.push_back(spccl::testing::RandomElements(c.op.dtype, c.op.count, 0.7,
                                                      /*specials=*/false, &random));
    }
    Outcome outcome;
    RunCase(c, inputs, &outcome);
    SCOPED_TRACE(Describe(c));
    ASSERT_GT(outcome.stats.input_elements, 0u);
    EXPECT_NEAR(static_cast<double>(outcome.stats.input_nnz) /
                    static_cast<double>(outcome.stats.input_elements),
                0.3, 0.03);
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

}  // namespace
}  // namespace spccl::runtime
