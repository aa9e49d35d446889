#include "collective/transport/mesh/mesh_transport.h"

#include <vector>

#include "collective/transport/fake/fake_net.h"
#include "gtest/gtest.h"

namespace spccl::transport {
namespace {

class CountingSink final : public Sink {
 public:
  void OnFrame(const Tag& tag, Frame frame) override {
    tags.push_back(tag);
    data.push_back(frame.data());
  }
  void OnPeerFailed(uint32_t /*rank*/, absl::Status /*reason*/) override {}
  void OnRoom() override { ++rooms; }
  void OnAnnounced(const FrameSize& size) override { sizes.push_back(size); }

  std::vector<FrameSize> sizes;
  std::vector<Tag> tags;
  std::vector<const std::byte*> data;
  int rooms = 0;
};

TEST(MeshTransportTest, FramesOfThisNodeChangeHandsAndOthersTravel) {
  FakeNet net(1, {0, 0, 1});
  MeshTransport mesh({true, true, false}, net.Open(0));
  const auto other = net.Open(1);
  CountingSink here, there;
  mesh.Start(&here);
  other->Start(&there);
  Frame frame = FramePool::Shared().Take(100);
  const std::byte* const data = frame.data();
  ASSERT_TRUE(mesh.Send({.from = 0, .to = 1}, std::move(frame)).ok());
  ASSERT_EQ(here.data.size(), 1);
  EXPECT_EQ(here.data[0], data);
  EXPECT_FALSE(net.DeliverOne());

  ASSERT_TRUE(mesh.Send({.from = 1, .to = 2, .chunk = 5}, FramePool::Shared().Take(100)).ok());
  EXPECT_TRUE(there.tags.empty());
  ASSERT_TRUE(net.DeliverOne());
  ASSERT_EQ(there.tags.size(), 1);
  EXPECT_EQ(there.tags[0].chunk, 5);
  EXPECT_EQ(here.tags.size(), 1);
}

TEST(MeshTransportTest, ThereIsAlwaysRoomHereAndTheOtherSaysForThere) {
  FakeNet net(1, {0, 0, 1});
  net.LimitRoom(1);
  MeshTransport mesh({true, true, false}, net.Open(0));
  const auto other = net.Open(1);
  CountingSink here, there;
  mesh.Start(&here);
  other->Start(&there);
  EXPECT_TRUE(mesh.HasRoom(2));
  ASSERT_TRUE(mesh.Send({.from = 0, .to = 2}, FramePool::Shared().Take(100)).ok());
  EXPECT_FALSE(mesh.HasRoom(2));
  EXPECT_TRUE(mesh.HasRoom(1));
  EXPECT_EQ(here.rooms, 0);
  ASSERT_TRUE(net.DeliverOne());
  EXPECT_EQ(here.rooms, 1);
  EXPECT_TRUE(mesh.HasRoom(2));
}

TEST(MeshTransportTest, SizesAheadGoToOtherNodesOnly) {
  FakeNet net(1, {0, 0, 1});
  net.AnnounceFrames();
  MeshTransport mesh({true, true, false}, net.Open(0));
  const auto other = net.Open(1);
  CountingSink here, there;
  mesh.Start(&here);
  other->Start(&there);
  const std::vector<FrameSize> sizes = {{.tag = {.from = 0, .to = 1}, .bytes = 7},
                                        {.tag = {.from = 1, .to = 2}, .bytes = 100}};
  ASSERT_TRUE(mesh.AnnounceAhead(std::span(sizes).first(1)).ok());
  EXPECT_EQ(net.told_ahead(), 0);
  ASSERT_TRUE(mesh.AnnounceAhead(sizes).ok());
  EXPECT_EQ(net.told_ahead(), 1);
  Frame frame = FramePool::Shared().Take(100);
  frame.set_size_bytes(100);
  ASSERT_TRUE(mesh.Send(sizes[1].tag, std::move(frame)).ok());
  EXPECT_EQ(net.owed(), 0);
  ASSERT_TRUE(net.DeliverOne());
  ASSERT_EQ(there.sizes.size(), 1);
  EXPECT_EQ(there.sizes[0].bytes, 100);
  EXPECT_TRUE(there.tags.empty());
  ASSERT_TRUE(net.DeliverOne());
  EXPECT_EQ(there.tags.size(), 1);
}

}  // namespace
}  // namespace spccl::transport
