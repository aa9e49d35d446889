// Sequences worked out by hand from the paper's rules: section IV.C and formula (7).
#include "collective/policy/send_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "collective/policy/fastest_format.h"
#include "collective/policy/wire_format.h"
#include "gtest/gtest.h"
#include "kernels/layout.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kElements = 1000;
constexpr Phase kRs = Phase::kReduceScatter;
constexpr Phase kAg = Phase::kAllGather;

// One send: where it goes, what a compression would count there, and what must be decided.
struct Row {
  Link link;
  uint64_t nnz;
  Format format;
  Reason reason;
  double sparsity;
};

void ExpectSequence(SendPolicy policy, Phase phase, const std::vector<Row>& rows) {
  for (size_t step = 0; step < rows.size(); ++step) {
    const Row& row = rows[step];
    const Decision decision = policy.Next(phase, row.link, kElements);
    ASSERT_EQ(NameOf(decision.format), NameOf(row.format)) << "step " << step;
    ASSERT_EQ(NameOf(decision.reason), NameOf(row.reason)) << "step " << step;
    ASSERT_NEAR(decision.sparsity, row.sparsity, 1e-9) << "step " << step;
    if (decision.format == Format::kDense) {
      policy.SentDense();
    } else {
      policy.Compressed(row.nnz, kElements);
    }
  }
}

SendPolicy Sum(Settings settings = {}, OpKind kind = OpKind::kReduceScatter) {
  return SendPolicy(settings, OpDesc{.kind = kind, .count = kElements});
}

TEST(SendPolicyTest, StaysSparseWhileTheSparsityIsAboveTheThreshold) {
  // d_0 = 0.05, densifying to 0.14: the sparsity stays above 0.6.
  ExpectSequence(Sum(), kRs,
                 {{Link::kIntra, 50, Format::kPici, Reason::kFirst, 0},
                  {Link::kIntra, 97, Format::kPici, Reason::kKnownAbove, 0.95},
                  {Link::kIntra, 142, Format::kPici, Reason::kKnownAbove, 0.903}});
}

TEST(SendPolicyTest, ExtrapolatesThroughDenseSends) {
  // d_0 = 0.5. The sparsity 0.5 is at or below intra 0.6, so dense; then d = 1 - 0.5 * 0.5 = 0.75,
  // then 1 - 0.25 * 0.5 = 0.875.
  ExpectSequence(Sum(), kRs,
                 {{Link::kIntra, 500, Format::kPici, Reason::kFirst, 0},
                  {Link::kIntra, 0, Format::kDense, Reason::kKnownBelow, 0.5},
                  {Link::kIntra, 0, Format::kDense, Reason::kExtrapolatedBelow, 0.25},
                  {Link::kIntra, 0, Format::kDense, Reason::kExtrapolatedBelow, 0.125}});
}

TEST(SendPolicyTest, SparseAgainOnALinkWithALowerThresholdAndRecalibrated) {
  // d_0 = 0.2; step 1 counts 0.41: sparsity 0.59. Step 2, intra: 0.59 <= 0.6, dense, extrapolated
  // to 1 - 0.59 * 0.8 = 0.528: sparsity 0.472. Step 3 is inter with a threshold of 0.4: compressed,
  // and counts 0.45, less than extrapolated. Step 4, intra, knows 0.55.
  Settings settings;
  settings.pici.inter = 0.4;
  ExpectSequence(Sum(settings), kRs,
                 {{Link::kIntra, 200, Format::kPici, Reason::kFirst, 0},
                  {Link::kIntra, 410, Format::kPici, Reason::kKnownAbove, 0.8},
                  {Link::kIntra, 0, Format::kDense, Reason::kKnownBelow, 0.59},
                  {Link::kInter, 450, Format::kPici, Reason::kExtrapolatedAbove, 0.472},
                  {Link::kIntra, 0, Format::kDense, Reason::kKnownBelow, 0.55},
                  {Link::kInter, 0, Format::kPici, Reason::kExtrapolatedAbove, 0.44}});
}

TEST(SendPolicyTest, AtTheThresholdIsDense) {
  Settings settings;
  settings.pici.intra = 0.75;
  settings.pici.inter = 0.7499;
  SendPolicy policy = Sum(settings);
  policy.Compressed(250, kElements);
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).format, Format::kDense);
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).format, Format::kPici);
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).threshold, 0.75);
}

TEST(SendPolicyTest, ThresholdsOfZeroAndOne) {
  Settings settings;
  settings.codec = Codec::kPici;
  settings.pici = {.intra = 1, .inter = 0, .ag = 1};
  SendPolicy policy = Sum(settings);
  policy.Compressed(0, kElements);  // all zeros: sparsity 1, which is not above 1
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).format, Format::kDense);
  policy.Compressed(kElements, kElements);  // sparsity 0 is not above 0
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).format, Format::kDense);
  policy.Compressed(kElements - 1, kElements);
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).format, Format::kPici);
}

TEST(SendPolicyTest, CooHasItsOwnThresholds) {
  Settings settings;
  settings.codec = Codec::kCoo;
  // Sparsity 0.65 is above pici's 0.6, but not above coo's 0.7; inter is 0.6, and the dense send
  // between makes it 0.65^2.
  ExpectSequence(Sum(settings), kRs,
                 {{Link::kIntra, 350, Format::kCoo, Reason::kFirst, 0},
                  {Link::kIntra, 0, Format::kDense, Reason::kKnownBelow, 0.65},
                  {Link::kInter, 0, Format::kDense, Reason::kExtrapolatedBelow, 0.4225}});
}

TEST(SendPolicyTest, TheAllGatherOfAnAllReduceDecidesAnew) {
  // The reduce-scatter went dense at d = 0.875; the ag threshold of 0.1 lets 0.125 through.
  SendPolicy policy = Sum({}, OpKind::kAllReduce);
  policy.Compressed(500, kElements);
  policy.SentDense();
  policy.SentDense();
  Decision decision = policy.Next(kAg, Link::kIntra, kElements);
  EXPECT_EQ(decision.format, Format::kPici);
  EXPECT_EQ(decision.reason, Reason::kExtrapolatedAbove);
  EXPECT_NEAR(decision.sparsity, 0.125, 1e-12);
  EXPECT_EQ(decision.threshold, 0.1);
  // Where the shard was counted, that counts.
  policy.Counted(950, kElements);
  decision = policy.Next(kAg, Link::kInter, kElements);
  EXPECT_EQ(decision.format, Format::kDense);
  EXPECT_EQ(decision.reason, Reason::kKnownBelow);
  EXPECT_NEAR(decision.sparsity, 0.05, 1e-12);
}

TEST(SendPolicyTest, CountingTheShardLeavesTheFirstDensityAlone) {
  SendPolicy policy = Sum({}, OpKind::kAllReduce);
  policy.Compressed(100, kElements);
  policy.Counted(300, kElements);
  policy.SentDense();
  EXPECT_NEAR(*policy.density(), 1 - 0.7 * 0.9, 1e-12);
}

TEST(SendPolicyTest, AllGatherAndBroadcastCompressWhateverTheThresholds) {
  Settings settings;
  settings.pici = {.intra = 1, .inter = 1, .ag = 1};
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kBroadcast}) {
    // Not a reduction: the reduction's code in the slot does not matter.
    const OpDesc op{.kind = kind, .redop = RedOp::kMin, .count = kElements};
    const Decision decision = SendPolicy(settings, op).Next(kAg, Link::kInter, kElements);
    EXPECT_EQ(decision.format, Format::kPici);
    EXPECT_EQ(decision.reason, Reason::kFirst);
  }
}

TEST(SendPolicyTest, AutoCountsFirstAndTakesTheSmaller) {
  constexpr uint64_t kMany = 1 << 16;
  const struct {
    uint64_t nnz;
    Format format;
    Reason reason;
  } kRows[] = {{0, Format::kCoo, Reason::kFirst},
               {kMany * 31 / 1000, Format::kCoo, Reason::kFirst},
               {kMany * 32 / 1000, Format::kPici, Reason::kFirst},
               {kMany * 95 / 100, Format::kPici, Reason::kFirst},
               {kMany * 97 / 100, Format::kDense, Reason::kNoGain},
               {kMany, Format::kDense, Reason::kNoGain}};
  for (const auto& row : kRows) {
    for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kScatter}) {
      SendPolicy policy = Sum({}, kind);
      const Decision first = policy.Next(kAg, Link::kInter, kMany);
      ASSERT_TRUE(first.count_first);
      EXPECT_EQ(first.format, Format::kPici);
      const Decision chosen = policy.Choose(first, DType::kFloat32, row.nnz, kMany);
      EXPECT_FALSE(chosen.count_first);
      EXPECT_EQ(NameOf(chosen.format), NameOf(row.format)) << row.nnz;
      EXPECT_EQ(NameOf(chosen.reason), NameOf(row.reason)) << row.nnz;
      EXPECT_EQ(chosen.link, Link::kInter);
      EXPECT_NEAR(*policy.density(), static_cast<double>(row.nnz) / kMany, 1e-12);
      // Only where partial sums travel is the density known from then on.
      EXPECT_EQ(policy.Next(kRs, Link::kInter, kMany).count_first, !Reduces(kind));
    }
  }
}

TEST(SendPolicyTest, OnlyAutoCountsFirst) {
  for (const Codec codec : {Codec::kDense, Codec::kPici, Codec::kPiciColumn, Codec::kCoo}) {
    Settings settings;
    settings.codec = codec;
    EXPECT_FALSE(Sum(settings).Next(kRs, Link::kInter, kElements).count_first);
  }
  EXPECT_FALSE(Sum().Next(kRs, Link::kInter, 0).count_first);
}

TEST(SendPolicyTest, AutoFollowsTheDensityThatSumsWillHave) {
  // 2% then about 4%: coo first, pici from then on, though the last known density is below 3.1%.
  SendPolicy policy = Sum({}, OpKind::kAllReduce);
  constexpr uint64_t kMany = 100'000;
  policy.Choose(policy.Next(kRs, Link::kInter, kMany), DType::kFloat32, 2000, kMany);
  Decision decision = policy.Next(kRs, Link::kInter, kMany);
  EXPECT_EQ(decision.format, Format::kPici);
  EXPECT_EQ(decision.reason, Reason::kKnownAbove);
  EXPECT_NEAR(decision.sparsity, 0.98, 1e-12);
  EXPECT_EQ(decision.threshold, kPiciThresholds.inter);
  // The result was counted: no further sum comes on top.
  policy.Counted(2500, kMany);
  decision = policy.Next(kAg, Link::kInter, kMany);
  EXPECT_EQ(decision.format, Format::kCoo);
  EXPECT_EQ(decision.threshold, kCooThresholds.ag);
}

TEST(SendPolicyTest, AutoComparesWithTheThresholdsOfTheFormat) {
  Settings settings;
  settings.coo.inter = 1;  // never
  SendPolicy policy = Sum(settings);
  policy.Compressed(10, kElements);
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).format, Format::kDense);
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).format, Format::kCoo);
  policy.Compressed(50, kElements);
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).format, Format::kPici);
}

Settings Auto(Codec codec = Codec::kAuto) {
  return {.codec = codec, .pici = kAutoThresholds, .coo = kAutoThresholds};
}

Costs LinkOf(double rate) {
  Costs costs;
  costs.link_rate = rate;
  return costs;
}

constexpr uint64_t kMany = 100'000;

Decision FirstOf(const Costs& costs, double density, const Habit& habit = {},
                 Codec codec = Codec::kAuto, OpKind kind = OpKind::kAllReduce) {
  SendPolicy policy(Auto(codec), OpDesc{.kind = kind, .count = kMany}, &costs, habit);
  const Decision first = policy.Next(kRs, Link::kInter, kMany);
  EXPECT_TRUE(first.count_first);
  return policy.Choose(first, DType::kFloat32, static_cast<uint64_t>(std::llround(density * kMany)),
                       kMany);
}

TEST(SendPolicyTest, AThresholdOfAutoTakesWhatTheModelHasArriveFirst) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  int sparse = 0, dense = 0;
  for (int i = 0; i < 2000; ++i) {
    const Costs costs = LinkOf(std::pow(10, 8 + 3 * share(random)));
    const double density = std::round(share(random) * kMany) / kMany;
    const Codec codec = random() % 2 == 0 ? Codec::kAuto : Codec::kCoo;
    const Decision decision = FirstOf(costs, density, {}, codec);
    const Outlook outlook =
        Compare(costs, codec, {.width = 4, .density = density, .combines = true});
    const bool smaller = LayoutOf(outlook.sparse.format, DType::kFloat32, kMany,
                                  static_cast<uint64_t>(std::llround(density * kMany)))
                             .total < LayoutOf(Format::kDense, DType::kFloat32, kMany, kMany).total;
    const bool faster = smaller && outlook.sparse.seconds < outlook.dense.seconds;
    EXPECT_EQ(decision.format, faster ? outlook.sparse.format : Format::kDense);
    EXPECT_EQ(decision.reason, faster    ? Reason::kFirst
                               : smaller ? Reason::kModelDense
                                         : Reason::kNoGain);
    ASSERT_TRUE(decision.forecast && decision.runner_up);
    EXPECT_EQ(decision.forecast->format, decision.format);
    EXPECT_NE(decision.runner_up->format, decision.format);
    EXPECT_NEAR(decision.forecast->seconds,
                kMany * (faster ? outlook.sparse : outlook.dense).seconds, 1e-12);
    ++(faster ? sparse : dense);
  }
  EXPECT_GT(sparse, 100);
  EXPECT_GT(dense, 100);
}

TEST(SendPolicyTest, TheModelKeepsToItsHabit) {
  // Where both take as long, the habit decides; where one is faster by more than the hysteresis,
  // it does not matter.
  const Costs costs = LinkOf(1e11);
  const auto ratio = [&](double density) {
    const Outlook outlook =
        Compare(costs, Codec::kAuto, {.width = 4, .density = density, .combines = true});
    return outlook.sparse.seconds / outlook.dense.seconds;
  };
  double low = 0.001, high = 0.95;
  ASSERT_LT(ratio(low), 1);
  ASSERT_GT(ratio(high), 1);
  for (int i = 0; i < 60; ++i) (ratio((low + high) / 2) < 1 ? low : high) = (low + high) / 2;
  const Habit sparse{Leaning::kSparse, Leaning::kNone}, dense{Leaning::kDense, Leaning::kNone};
  EXPECT_NE(FirstOf(costs, low, sparse).format, Format::kDense);
  EXPECT_EQ(FirstOf(costs, low, dense).format, Format::kDense);
  for (double density = 0.001; density < 0.9; density += 0.01) {
    const double by = ratio(density);
    if (by < 0.96) {
      EXPECT_NE(FirstOf(costs, density, dense).format, Format::kDense) << density;
    }
    if (by > 1.04) {
      EXPECT_EQ(FirstOf(costs, density, sparse).format, Format::kDense) << density;
    }
  }
}

TEST(SendPolicyTest, AnEstimateMayDoForWhatMostDid) {
  const Costs costs = LinkOf(1e9);
  for (const Leaning leaning : {Leaning::kNone, Leaning::kSparse, Leaning::kDense}) {
    SendPolicy policy(Auto(Codec::kAuto), OpDesc{.count = kMany}, &costs, Habit{leaning});
    const Decision first = policy.Next(kRs, Link::kInter, kMany);
    EXPECT_EQ(first.usual, leaning);
    EXPECT_EQ(policy.Choose(first, DType::kFloat32, kMany, kMany).usual, Leaning::kNone);
    // The density is known from then on.
    EXPECT_EQ(policy.Next(kRs, Link::kInter, kMany).usual, Leaning::kNone);
  }
}

TEST(SendPolicyTest, TheHabitIsWhatTwoThirdsDid) {
  std::array<std::array<uint64_t, kReasonCount>, kPhaseCount> decisions{};
  EXPECT_EQ(HabitOf(decisions), Habit{});
  const auto count = [&](Phase phase, Reason reason) -> uint64_t& {
    return decisions[static_cast<size_t>(phase)][static_cast<size_t>(reason)];
  };
  count(kRs, Reason::kFirst) = 5;
  count(kRs, Reason::kModelDense) = 2;
  count(kAg, Reason::kNoGain) = 3;
  count(kAg, Reason::kModelSparse) = 1;
  count(kAg, Reason::kForwarded) = 100;  // which nobody decided
  EXPECT_EQ(HabitOf(decisions), (Habit{Leaning::kSparse, Leaning::kDense}));
  count(kRs, Reason::kNoGain) = 1;
  EXPECT_EQ(HabitOf(decisions), (Habit{Leaning::kNone, Leaning::kDense}));
}

TEST(SendPolicyTest, TheModelDecidesLaterSendsToo) {
  // A slow link: sparse as long as that is smaller at all, though the paper's threshold is 0.5.
  const Costs costs = LinkOf(1e8);
  SendPolicy policy(Auto(), OpDesc{.kind = OpKind::kAllReduce, .count = kMany}, &costs);
  policy.Compressed(kMany * 4 / 10, kMany);
  Decision decision = policy.Next(kRs, Link::kInter, kMany);
  EXPECT_EQ(decision.format, Format::kPici);
  EXPECT_EQ(decision.reason, Reason::kModelSparse);
  EXPECT_EQ(decision.threshold, 0);  // none was compared with
  EXPECT_NEAR(decision.sparsity, 0.6, 1e-12);
  policy.Counted(kMany, kMany);
  decision = policy.Next(kAg, Link::kInter, kMany);
  EXPECT_EQ(decision.format, Format::kDense);
  EXPECT_EQ(decision.reason, Reason::kModelDense);
}

TEST(SendPolicyTest, WithoutCostsAutoIsThePapersThreshold) {
  SendPolicy policy = Sum(Auto());
  policy.Compressed(450, kElements);
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).reason, Reason::kKnownBelow);
  EXPECT_EQ(policy.Next(kRs, Link::kIntra, kElements).threshold, kPiciThresholds.intra);
  EXPECT_EQ(policy.Next(kRs, Link::kInter, kElements).reason, Reason::kKnownAbove);
}

TEST(SendPolicyTest, FixedThresholdsStayWhatTheyAreWhateverTheCosts) {
  for (const double rate : {1e7, 1e9, 1e12}) {
    const Costs costs = LinkOf(rate);
    for (uint64_t nnz = 0; nnz <= 1000; nnz += 10) {
      const Settings settings{.codec = Codec::kPici, .pici = kPiciThresholds};
      const OpDesc op{.kind = OpKind::kAllReduce, .count = kElements};
      SendPolicy with(settings, op, &costs), without(settings, op);
      for (SendPolicy* const policy : {&with, &without}) policy->Compressed(nnz, kElements);
      for (const Phase phase : {kRs, kAg}) {
        const Decision a = with.Next(phase, Link::kInter, kElements);
        const Decision b = without.Next(phase, Link::kInter, kElements);
        EXPECT_EQ(a.format, b.format);
        EXPECT_EQ(a.reason, b.reason);
        EXPECT_EQ(a.threshold, b.threshold);
        EXPECT_TRUE(a.forecast.has_value());  // told all the same
      }
    }
  }
}

// Also where a way that trials have found, or a setting, decides.
TEST(SendPolicyTest, WhatIsFixedIsForetoldToo) {
  const Costs costs = LinkOf(1e9);
  const OpDesc op{.kind = OpKind::kAllReduce, .count = kElements};
  const Thresholds never{.intra = 0, .inter = 0, .ag = 0};
  SendPolicy pici({.codec = Codec::kPici, .pici = never}, op, &costs);
  Decision first = pici.Next(kRs, Link::kInter, kElements);
  EXPECT_FALSE(first.forecast.has_value());  // its density is not known
  pici.Compressed(100, kElements);
  pici.Foretell(DType::kFloat32, kElements, &first);
  ASSERT_TRUE(first.forecast.has_value());
  EXPECT_EQ(first.forecast->format, Format::kPici);
  ASSERT_TRUE(first.runner_up.has_value());
  EXPECT_NE(first.runner_up->format, Format::kPici);
  const double before = first.forecast->seconds;
  pici.Counted(900, kElements);
  pici.Foretell(DType::kFloat32, kElements, &first);
  EXPECT_EQ(first.forecast->seconds, before);  // told once
  const SendPolicy dense({.codec = Codec::kDense}, op, &costs);
  const Decision told = dense.Next(kRs, Link::kInter, kElements);
  ASSERT_TRUE(told.forecast.has_value());
  EXPECT_EQ(told.forecast->format, Format::kDense);
  EXPECT_GE(told.forecast->seconds, kElements * 4 / 1e9);
  EXPECT_FALSE(told.runner_up.has_value());
  EXPECT_FALSE(dense.Next(kRs, Link::kIntra, kElements).forecast.has_value());
  EXPECT_FALSE(SendPolicy({.codec = Codec::kDense}, op)
                   .Next(kRs, Link::kInter, kElements)
                   .forecast.has_value());
}

TEST(SendPolicyTest, WhatIsPassedOnTakesItsBytesOverTheLink) {
  const Costs costs = LinkOf(1e9);
  const SendPolicy policy(Auto(), OpDesc{.kind = OpKind::kAllReduce, .count = kMany}, &costs);
  const Decision far = policy.PassOn(kAg, Link::kInter, Format::kGap, 2000);
  EXPECT_EQ(far.reason, Reason::kForwarded);
  ASSERT_TRUE(far.forecast.has_value());
  EXPECT_DOUBLE_EQ(far.forecast->wire_seconds, 2e-6);
  EXPECT_FALSE(policy.PassOn(kAg, Link::kIntra, Format::kGap, 2000).forecast.has_value());
}

TEST(SendPolicyTest, WhatCannotBeSparseIsDense) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int redop = 0; redop < kRedOpCount; ++redop) {
      const OpDesc op{.dtype = static_cast<DType>(dtype), .redop = static_cast<RedOp>(redop)};
      const bool sparse = op.redop == RedOp::kSum ||
                          (op.redop == RedOp::kAvg && dtype >= 6);  // the floats come last
      const Decision decision = SendPolicy({}, op).Next(kRs, Link::kIntra, kElements);
      EXPECT_EQ(decision.format, sparse ? Format::kPici : Format::kDense) << dtype << " " << redop;
      EXPECT_EQ(decision.reason, sparse ? Reason::kFirst : Reason::kOperationDense);
    }
  }
}

TEST(SendPolicyTest, CodecAndEmptySlices) {
  Settings settings;
  settings.codec = Codec::kDense;
  EXPECT_EQ(Sum(settings).Next(kRs, Link::kIntra, kElements).reason, Reason::kCodecDense);
  EXPECT_FALSE(Sum(settings).compresses());
  settings.codec = Codec::kPiciColumn;
  EXPECT_EQ(Sum(settings).Next(kRs, Link::kIntra, kElements).format, Format::kPiciColumn);
  EXPECT_EQ(Sum().Next(kRs, Link::kIntra, 0).reason, Reason::kEmpty);
  EXPECT_EQ(Sum().Next(kRs, Link::kIntra, 0).format, Format::kDense);
}

TEST(SendPolicyTest, TheSmallestFrameHangsOnSettingsOnly) {
  // Whatever things cost, and whatever was sent before.
  const Costs fast_link = LinkOf(1e11), slow_link = LinkOf(1e6);
  const auto least = [&](const Settings& settings, double density) {
    const OpDesc op{.kind = OpKind::kAllReduce};
    const double bytes = Sum(settings, op.kind).LeastBytes(kAg, Link::kInter, density);
    for (const Costs* const costs : {&fast_link, &slow_link}) {
      for (const Leaning leaning : {Leaning::kSparse, Leaning::kDense}) {
        Habit habit;
        habit.fill(leaning);
        EXPECT_EQ(SendPolicy(settings, op, costs, habit).LeastBytes(kAg, Link::kInter, density),
                  bytes);
      }
    }
    return bytes;
  };
  for (const double density : {0.001, 0.1, 0.5, 1.0}) {
    const double gap = std::min(BytesPerElement(Format::kGap, 4, density), 4.0);
    EXPECT_EQ(least({.codec = Codec::kDense}, density), 4);
    EXPECT_EQ(least({.codec = Codec::kGap, .pici = kAutoThresholds}, density), gap);
    EXPECT_EQ(least({.codec = Codec::kGap, .pici = {.intra = 0, .inter = 0, .ag = 0.7}}, density),
              density < 0.3 ? gap : 4);
    const double pici = BytesPerElement(Format::kPici, 4, density);
    EXPECT_EQ(least({.pici = kAutoThresholds, .coo = kAutoThresholds}, density),
              std::min(gap, pici));
  }
}

}  // namespace
}  // namespace spccl::policy
