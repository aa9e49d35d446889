#include "bench/tune/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/bench/tune/synthetic.h"
#include "tests/support/status_test.h"

namespace spccl::tune {
namespace {

using testing::IsOk;

TEST(StratifiedFoldsTest, EveryLabelIsSpreadEvenly) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<int> labels(20 + random() % 80);
    for (int& label : labels) label = static_cast<int>(random() % 4);
    const std::vector<int> fold = StratifiedFolds(labels, 5, trial);
    std::map<int, std::vector<int>> members;  // of each label, by fold
    std::vector<int> sizes(5);
    for (size_t i = 0; i < labels.size(); ++i) {
      members[labels[i]].resize(5);
      ++members[labels[i]][fold[i]];
      ++sizes[fold[i]];
    }
    for (const auto& [label, counts] : members) {
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1) << "label " << label << ", seed " << trial;
    }
    EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()),
              *std::min_element(sizes.begin(), sizes.end()) + 1);
    EXPECT_EQ(StratifiedFolds(labels, 5, trial), fold);
  }
}

TEST(LabelTest, TiesGoToTheWayThatIsAmongTheFastestMostOften) {
  const auto with = [](double a, double b, double c) {
    return Measured{.at = {}, .time_us = {{"a", a}, {"b", b}, {"c", c}}};
  };
  std::vector<std::string> ways;
  // b is within 2% of the fastest in the first three, c alone in the last.
  const std::vector<int> labels =
      Label({with(100, 101, 150), with(120, 100, 150), with(100, 101.9, 150), with(90, 80, 10)},
            0.02, &ways);
  EXPECT_THAT(ways, ::testing::ElementsAre("b", "c"));
  EXPECT_THAT(labels, ::testing::ElementsAre(0, 0, 0, 1));
}

TEST(TrainTest, LearnsARuleFromNoisyTimes) {
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Measured> cases = SyntheticCases(0.005, seed);
    const auto learned = Train(cases, {.seed = seed});
    ASSERT_THAT(learned, IsOk());
    EXPECT_GT(learned->held_out.accuracy(), 0.95) << seed;
    EXPECT_LT(learned->held_out.mean_loss, 0.02) << seed;
    EXPECT_EQ(learned->held_out.cases, static_cast<int>(cases.size() + 4) / 5);
    EXPECT_GT(learned->cross_validated.accuracy(), 0.9) << seed;
    // The cost model of these cases always splits.
    EXPECT_LT(learned->cost_model.accuracy(), 0.7);
    EXPECT_NEAR(learned->cost_model.worst_loss, 0.3, 0.02);
    EXPECT_THAT(learned->ways, ::testing::UnorderedElementsAre("recursive-doubling", "split"));
  }
}

TEST(TrainTest, TheTableIsTheMeasuredBestAndFillsWhatIsBetween) {
  const std::vector<Measured> cases = SyntheticCases(0.005, 1);
  const auto learned = Train(cases, {});
  ASSERT_THAT(learned, IsOk());
  ASSERT_EQ(learned->grids.size(), 3u);  // 2, 3 and 4 nodes
  const auto find = [&](uint32_t nodes, uint64_t bytes, double density) {
    policy::PlanTable table;
    table.grids[static_cast<size_t>(OpKind::kAllReduce)] =
        learned->grids.at({.nodes = nodes, .most_ranks = 1});
    return policy::NameOf(table.Find(OpKind::kAllReduce, bytes, density));
  };
  for (const Measured& one : cases) {
    if (one.at.sparsity == 0.3) continue;  // shares its cell with 0.5
    EXPECT_EQ(find(one.at.nodes, one.at.bytes, 1 - one.at.sparsity), BestOf(one.at))
        << Describe(one.at);
  }
  // Neither this size, nor this density, nor three nodes were measured.
  EXPECT_EQ(find(3, 12'000'000, 1), "split");
  EXPECT_EQ(find(3, 12'000'000, 0.005), "recursive-doubling");
  EXPECT_EQ(find(3, 100'000, 1), "recursive-doubling");
  EXPECT_EQ(find(2, 1000, 1), "auto");  // smaller than what was measured
}

TEST(TrainTest, WhatIsDenserThanWhatWasMeasuredIsLeftToTheCostModel) {
  std::vector<Measured> cases = SyntheticCases(0.005, 1);
  std::erase_if(cases, [](const Measured& one) { return one.at.sparsity < 0.9; });
  const auto learned = Train(cases, {});
  ASSERT_THAT(learned, IsOk());
  for (const auto& [shape, grid] : learned->grids) {
    policy::PlanTable table;
    table.grids[static_cast<size_t>(OpKind::kAllReduce)] = grid;
    for (uint64_t bytes = 64 << 10; bytes <= 64 << 20; bytes *= 2) {
      for (const double density : {1.0, 0.5, 0.25}) {
        EXPECT_EQ(table.Find(OpKind::kAllReduce, bytes, density), policy::Pick{}) << density;
      }
      EXPECT_EQ(policy::NameOf(table.Find(OpKind::kAllReduce, bytes, 0.1)), "recursive-doubling");
      EXPECT_EQ(policy::NameOf(table.Find(OpKind::kAllReduce, bytes, 0.001)), "recursive-doubling");
    }
  }
}

TEST(TrainTest, ASingleBestWayNeedsNoMachine) {
  std::vector<Measured> cases = SyntheticCases(0, 1);
  for (Measured& one : cases) {
    one.time_us = {{"split", 1}, {"two-level-ring", 2}};
    one.auto_us = 1;
  }
  const auto learned = Train(cases, {});
  ASSERT_THAT(learned, IsOk());
  EXPECT_EQ(learned->held_out.accuracy(), 1);
  EXPECT_THAT(learned->ways, ::testing::ElementsAre("split"));
}

// Whatever plan it names, and whether that plan was measured by itself.
TEST(TrainTest, TheCostModelsLossIsThatOfWhatItRan) {
  std::vector<Measured> cases = SyntheticCases(0, 1);
  for (Measured& one : cases) {
    one.time_us = {{"split", 100}, {"two-level-ring", 200}};
    one.auto_us = 110;
  }
  const auto slower = Train(cases, {});
  ASSERT_THAT(slower, IsOk());
  EXPECT_DOUBLE_EQ(slower->cost_model.mean_loss, 110.0 / 100 - 1);
  EXPECT_EQ(slower->held_out.mean_loss, 0);
  for (Measured& one : cases) one.auto_us = 80;
  const auto faster = Train(cases, {});
  ASSERT_THAT(faster, IsOk());
  EXPECT_EQ(faster->cost_model.mean_loss, 0);
  EXPECT_DOUBLE_EQ(faster->held_out.mean_loss, 100.0 / 80 - 1);
}

TEST(TrainTest, WhatIsHeldOutDoesNotSayHowTheOthersCount) {
  std::vector<Measured> cases = SyntheticCases(0, 1);
  const TrainOptions options;
  // With one label for all, whose members a split deals out like this.
  const std::vector<int> fold =
      StratifiedFolds(std::vector<int>(cases.size()), options.folds, options.seed);
  for (size_t i = 0; i < cases.size(); ++i) {
    // Of equals, direct is taken; only those that are held out say that it should be split.
    cases[i].time_us = {{"direct", fold[i] == 0 ? 150 : 100}, {"split", 100}};
    cases[i].auto_us = 100;
  }
  const auto learned = Train(cases, options);
  ASSERT_THAT(learned, IsOk());
  EXPECT_DOUBLE_EQ(learned->held_out.mean_loss, 0.5);
  EXPECT_EQ(learned->cross_validated.mean_loss, 0);
  EXPECT_THAT(learned->ways, ::testing::ElementsAre("split"));  // of all
}

TEST(TrainTest, TooFewCasesAreRefused) {
  std::vector<Measured> cases = SyntheticCases(0, 1);
  cases.resize(9);
  EXPECT_TRUE(absl::IsInvalidArgument(Train(cases, {}).status()));
}

}  // namespace
}  // namespace spccl::tune
