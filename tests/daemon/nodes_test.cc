// A hold is one share in a connection, from Connect() or Hold() until it ends.
#include "daemon/nodes.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

constexpr NodeId kNode = 7;

// One other node; counts its holds.
class CountingNodes final : public Nodes {
 public:
  void Start(NodeEvents) override {}
  void Stop() override {}
  const NodeInfo& self() const override { return self_; }
  absl::StatusOr<NodeId> Connect(const std::string& address, uint64_t) override {
    if (address.empty()) return absl::InvalidArgumentError("it is this one");
    ++holds_;
    return kNode;
  }
  void Hold(NodeId node) override { holds_ += node == kNode ? 1 : 1000; }
  void Release(NodeId node) override { holds_ -= node == kNode ? 1 : 1000; }
  void Send(NodeId, const v1::PeerMessage&) override {}
  absl::StatusOr<std::unique_ptr<NodeChannel>> OpenChannel(ChannelOptions) override {
    return absl::UnimplementedError("");
  }
  void UseGpus(runtime::Gpus*, std::shared_ptr<const transport::nccl::Library>) override {}
  void UseNoGpus(std::string) override {}
  GpuOffer OfferGpus() override { return {}; }
  std::string RouteTo(NodeId) const override { return ""; }
  void MeasureLink(NodeId) override {}
  LinkSpeed SpeedOf(NodeId) const override { return {}; }

  int holds() const { return holds_; }

 private:
  const NodeInfo self_;
  int holds_ = 0;
};

TEST(NodeHoldTest, HoldsUntilItEnds) {
  CountingNodes nodes;
  {
    const NodeHold held(&nodes, kNode);
    EXPECT_EQ(nodes.holds(), 1);
    const absl::StatusOr<NodeHold> connected = NodeHold::Connect(&nodes, "there", 1);
    ASSERT_TRUE(connected.ok());
    EXPECT_EQ(connected->node(), kNode);
    EXPECT_EQ(nodes.holds(), 2);
    EXPECT_FALSE(NodeHold::Connect(&nodes, "", 1).ok());
  }
  EXPECT_EQ(nodes.holds(), 0);
}

TEST(NodeHoldTest, AMapOfThemKeepsOneANode) {
  CountingNodes nodes;
  std::map<NodeId, NodeHold> peers;
  peers.try_emplace(kNode, &nodes, kNode);
  EXPECT_EQ(nodes.holds(), 1);
  {
    absl::StatusOr<NodeHold> again = NodeHold::Connect(&nodes, "there", 1);
    ASSERT_TRUE(again.ok());
    peers.try_emplace(kNode, *std::move(again));
    EXPECT_EQ(nodes.holds(), 2);
  }
  EXPECT_EQ(nodes.holds(), 1);
  peers.try_emplace(kNode, &nodes, kNode);
  EXPECT_EQ(nodes.holds(), 1);
  peers.clear();
  EXPECT_EQ(nodes.holds(), 0);
}

}  // namespace
}  // namespace spccl::daemon
