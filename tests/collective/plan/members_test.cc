#include "collective/plan/members.h"

#include "gtest/gtest.h"

namespace spccl::plan {
namespace {

TEST(MembersTest, OfAZigzagOrder) {
  const std::vector<uint32_t> nodes = {7, 2, 7, 2, 2};
  EXPECT_EQ(NodeMembers(nodes), (Members{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(FlatMembersByNode(nodes), (Members{{0}, {2}, {1}, {3}, {4}}));
  EXPECT_EQ(FlatMembers(3), (Members{{0}, {1}, {2}}));
  EXPECT_EQ(ParticipantOfRank(NodeMembers(nodes)), (std::vector<uint32_t>{0, 1, 0, 1, 1}));
  EXPECT_EQ(RanksIn(NodeMembers(nodes)), 5U);
}

}  // namespace
}  // namespace spccl::plan
