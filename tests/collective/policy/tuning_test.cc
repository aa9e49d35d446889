#include "collective/policy/tuning.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

TEST(TuningTest, CostsComeBackFromTheirArray) {
  std::vector<double> values;
  for (size_t i = 0; i < kCostCount; ++i) values.push_back(static_cast<double>(i) + 0.5);
  const auto costs = CostsFrom(values);
  ASSERT_TRUE(costs.has_value());
  EXPECT_EQ(costs->alpha, 0.5);
  EXPECT_EQ(costs->link_rate, 1.5);
  EXPECT_EQ(costs->cores, 3.5);
  EXPECT_EQ(costs->pici.combine_1, 12.5);
  EXPECT_EQ(costs->gap.combine_1, 24.5);
  const auto array = ToArray(*costs);
  EXPECT_EQ(std::vector<double>(array.begin(), array.end()), values);
}

TEST(TuningTest, RefusesWhatNobodyCanHaveMeasured) {
  const auto good = ToArray(Costs{});
  EXPECT_EQ(CostsFrom(good), Costs{});
  EXPECT_FALSE(CostsFrom(std::span(good).first(kCostCount - 1)).has_value());
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    for (size_t i = 0; i < kCostCount; ++i) {
      auto bad = good;
      bad[i] = wrong;
      EXPECT_FALSE(CostsFrom(bad).has_value());
    }
  }
}

TEST(TuningTest, TheSlowerOfTwo) {
  Costs a;
  Costs b;
  a.alpha = 1e-3;
  b.link_rate = 1e8;
  b.cores = 64;
  const Costs slower = SlowerOf(a, b);
  EXPECT_EQ(slower, SlowerOf(b, a));
  EXPECT_EQ(slower.alpha, 1e-3);
  EXPECT_EQ(slower.link_rate, 1e8);
  EXPECT_EQ(slower.cores, a.cores);
}

TEST(TuningTest, Densities) {
  EXPECT_EQ(DensitiesFrom(std::vector<double>{0, 0.5, 1, 1, 0.25}),
            (std::array<double, kDensityCount>{0, 0.5, 1, 1, 0.25}));
  EXPECT_FALSE(DensitiesFrom(std::vector<double>{0, 0.5, 1, 1}).has_value());
  EXPECT_FALSE(DensitiesFrom(std::vector<double>{0, 0.5, 1, 1, 1.5}).has_value());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(DensitiesFrom(std::vector<double>{0, nan, 1, 1, 1}).has_value());
}

}  // namespace
}  // namespace spccl::policy
