#include "daemon/node_costs.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

NodeCosts Of(double cores, uint64_t machine, double alpha = 0, double link_rate = 0) {
  NodeCosts node{.machine = machine, .alpha = alpha, .link_rate = link_rate};
  node.costs.cores = cores;
  return node;
}

TEST(NodeCostsTest, NodesOfOneMachineShareItsCores) {
  const policy::Costs defaults;
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 1)}, defaults).cores, 8);
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 1), Of(8, 1)}, defaults).cores, 4);
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 1), Of(8, 1), Of(3, 2)}, defaults).cores, 3);
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 1), Of(5, 2), Of(8, 1), Of(8, 1)}, defaults).cores,
            8.0 / 3);
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 0), Of(8, 0)}, defaults).cores, 8);  // not known
  EXPECT_EQ(CommonCosts(std::vector{Of(8, 1), Of(8, 1)}, defaults).stream_rate,
            defaults.stream_rate / 2);
}

TEST(NodeCostsTest, TheSlowestLinkCounts) {
  const policy::Costs defaults;
  const auto costs = CommonCosts(
      std::vector{Of(1, 1, 3e-6, 9e9), Of(1, 2, 5e-6, 7e9), Of(1, 3, 4e-6, 8e9)}, defaults);
  EXPECT_EQ(costs.alpha, 5e-6);
  EXPECT_EQ(costs.link_rate, 7e9);
}

TEST(NodeCostsTest, LinksThatAreNotKnownCountOnlyIfNoneIs) {
  const policy::Costs defaults;
  auto costs = CommonCosts(std::vector{Of(1, 1), Of(1, 2, 5e-6, 7e9), Of(1, 3, 4e-6)}, defaults);
  EXPECT_EQ(costs.alpha, 5e-6);
  EXPECT_EQ(costs.link_rate, 7e9);
  costs = CommonCosts(std::vector{Of(1, 1), Of(1, 2)}, defaults);
  EXPECT_EQ(costs.alpha, defaults.alpha);
  EXPECT_EQ(costs.link_rate, defaults.link_rate);
}

TEST(NodeCostsTest, OtherConstantsAreTheSlowestOneByOne) {
  NodeCosts a = Of(1, 1), b = Of(1, 2);
  a.costs.pici.encode_0 = 1e9;
  b.costs.reduce_rate = 2e9;
  b.costs.frame = 1;
  const policy::Costs costs = CommonCosts(std::vector{a, b}, policy::Costs());
  EXPECT_EQ(costs.pici.encode_0, 1e9);
  EXPECT_EQ(costs.reduce_rate, 2e9);
  EXPECT_EQ(costs.frame, 1);
}

TEST(NodeCostsTest, ALinksSpeedIsANumber) {
  EXPECT_TRUE(CheckLink(0, 0).ok());
  EXPECT_TRUE(CheckLink(1e-6, 1e9).ok());
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(CheckLink(wrong, 1).ok());
    EXPECT_FALSE(CheckLink(1, wrong).ok());
  }
}

}  // namespace
}  // namespace spccl::daemon
