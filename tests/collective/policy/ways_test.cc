#include "collective/policy/ways.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

constexpr OpDesc kAllReduce{.kind = OpKind::kAllReduce,
                            .dtype = DType::kFloat32,
                            .redop = RedOp::kSum,
                            .count = uint64_t{1} << 22};

Topology SingleRanks(uint32_t nodes) {
  return {.nodes = nodes, .ranks = nodes, .most_ranks = 1};
}

Tuning TuningAt(double density, double link_rate = 1.15e9) {
  Tuning tuning;
  tuning.densities.fill(density);
  tuning.costs.link_rate = link_rate;
  return tuning;
}

std::vector<std::string> Names(const Tuning& tuning, const OpDesc& op = kAllReduce) {
  const Algorithm algorithm = ChoosePlan(tuning, op, SingleRanks(2)).algorithm;
  std::vector<std::string> names;
  for (const Way& way : WaysToTry(algorithm, tuning, op, SingleRanks(2)))
    names.push_back(NameOf(way));
  return names;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(WaysTest, TheModelIsFirst) {
  for (const double density : {1.0, 0.1, 0.001}) EXPECT_EQ(Names(TuningAt(density))[0], "model");
}

TEST(WaysTest, WhatCannotShrinkIsNotTried) {
  EXPECT_EQ(Names(TuningAt(1)), (std::vector<std::string>{"model", "dense"}));
}

TEST(WaysTest, WhatMustGoDenseIsNoTrial) {
  OpDesc product = kAllReduce;
  product.redop = RedOp::kProd;
  EXPECT_EQ(Names(TuningAt(0.01), product), (std::vector<std::string>{"model"}));
}

TEST(WaysTest, OnASlowLinkAndFewNonzerosDenseIsNotTried) {
  const std::vector<std::string> names = Names(TuningAt(0.01, 1.2e8));
  EXPECT_TRUE(Has(names, "gap"));
  EXPECT_FALSE(Has(names, "dense"));
}

TEST(WaysTest, WhatMovesUnchangedHasFirstSendsOnly) {
  OpDesc gather = kAllReduce;
  gather.kind = OpKind::kAllGather;
  for (const std::string& name : Names(TuningAt(0.05), gather)) {
    EXPECT_EQ(name.find("first"), std::string::npos) << name;
  }
}

TEST(WaysTest, OnlySettingsThatSayNothingLeaveAllOpen) {
  Settings settings{.pici = kPiciThresholds, .coo = kCooThresholds};
  EXPECT_FALSE(LeavesAllOpen(settings));
  settings = {};
  EXPECT_TRUE(LeavesAllOpen(settings));
  settings.codec = Codec::kPici;
  EXPECT_FALSE(LeavesAllOpen(settings));
  settings.codec = Codec::kAuto;
  settings.coo.ag = 0.5;
  EXPECT_FALSE(LeavesAllOpen(settings));
}

TEST(WaysTest, AppliedAWayDecidesBetweenNodesOnly) {
  Settings settings{.pici = kAutoThresholds, .coo = kAutoThresholds};
  EXPECT_EQ(Apply(settings, Way{}), settings);
  const Settings gap = Apply(settings, {.by_model = false, .codec = Codec::kGap, .threshold = 1});
  EXPECT_EQ(gap.codec, Codec::kGap);
  EXPECT_EQ(gap.pici, (Thresholds{.intra = kAutoThreshold, .inter = 1, .ag = 1}));
}

}  // namespace
}  // namespace spccl::policy
