// Whether frames between GPUs go through a world of theirs is settled as nodes meet.
#include <unistd.h>

#include <vector>

#include "daemon/gpu_offer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/engine_meeting_fixture.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::IsOk;
using ::testing::HasSubstr;

GpuOffer OfferOf(uint32_t gpus, int version) {
  return {.gpus = gpus, .library_version = version, .generations = {}};
}

TEST_F(EngineMeetingTest, AWorldOfGpusIsChosenWhereAllCan) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  v1::Join join = JoinOf(2, 78);
  *join.mutable_gpu_offer() = ToMessage(OfferOf(4, 22809));
  v1::GpuWorld& known = *join.mutable_gpu_offer()->add_worlds();
  known.set_set(SetOf({{1, 8}, {kA, 4}}));
  known.set_generation(3);
  FormHere({{kA, join}});
  EXPECT_EQ(form_.gpu_generation(), 3U);
  EXPECT_EQ(form_.nodes(0).gpus(), 8U);
  EXPECT_EQ(form_.nodes(1).gpus(), 4U);
  SayReady(kA, 80e-6, 3e9);
  ExpectInit();
  const std::vector<ChannelOptions> opened = nodes_->opened();
  ASSERT_EQ(opened.size(), 1U);
  ASSERT_TRUE(opened[0].gpus.has_value());
  EXPECT_EQ(opened[0].gpus->generation, 3U);
  EXPECT_EQ(opened[0].gpus->nodes[1].gpus, 4U);
}

TEST_F(EngineMeetingTest, OneWithoutKeepsFramesOnTheHosts) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  v1::Join join = JoinOf(2, 78);
  *join.mutable_gpu_offer() = ToMessage(OfferOf(4, 22809));
  FormHere({{kA, join}, {kB, JoinOf(2, 79)}});  // B says nothing of GPUs
  EXPECT_EQ(form_.gpu_generation(), 0U);
  for (const NodeId node : {kA, kB}) SayReady(node, 80e-6, 3e9);
  ExpectInit();
  EXPECT_FALSE(nodes_->opened().at(0).gpus.has_value());
}

TEST_F(EngineMeetingTest, ANodeWithImpossiblyManyGpusIsRefused) {
  Begin(/*measures=*/true);
  v1::Join join = JoinOf(2, 78);
  join.mutable_gpu_offer()->set_gpus(kMostGpusOfNode + 1);
  const auto id = client_->UniqueId();
  ASSERT_THAT(id, IsOk());
  join.set_unique_id(*id);
  join.set_rank(1);
  join.set_ranks(2);
  join.set_uid(::getuid());
  v1::PeerMessage message;
  *message.mutable_join() = join;
  nodes_->Say(kA, message);
  EXPECT_THAT(nodes_->Await(kA, Kind::kCommFailed).comm_failed().message(), HasSubstr("1025 GPUs"));
}

TEST_F(EngineMeetingTest, ANodeSaysWhatGpusItHasAndOpensTheWorldItIsTold) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  MeetAtA(/*generation=*/2, /*gpus=*/8);
  EXPECT_EQ(join_.gpu_offer().gpus(), 8U);
  EXPECT_EQ(join_.gpu_offer().library_version(), 22809U);
  EXPECT_EQ(nodes_->Await(kA, Kind::kReady).kind_case(), Kind::kReady);
  ASSERT_TRUE(nodes_->opened().at(0).gpus.has_value());
  EXPECT_EQ(nodes_->opened().at(0).gpus->generation, 2U);
  SayGo(kA, CostsOf(1));
  ExpectInit();
}

TEST_F(EngineMeetingTest, AWorldWithoutGpusOfANodeIsNonsense) {
  Begin(/*measures=*/true);
  MeetAtA(/*generation=*/1, /*gpus=*/0);
  ExpectInit("a world of GPUs with 0 of node1");
}

}  // namespace
}  // namespace spccl::daemon
