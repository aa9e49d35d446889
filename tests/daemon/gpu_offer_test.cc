#include "daemon/gpu_offer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::testing::AllOf;
using ::testing::HasSubstr;

GpuOffering Node(uint64_t boot_id, uint32_t gpus, int version = 22809) {
  return {.name = "node" + std::to_string(boot_id),
          .boot_id = boot_id,
          .offer = {.gpus = gpus, .library_version = version, .generations = {}}};
}

TEST(GpuOfferTest, TravelsWhole) {
  const GpuOffer offer{.gpus = 8,
                       .library_version = 22809,
                       .is_ncclx = true,
                       .why_none = "because",
                       .generations = {{5, 1}, {1, 7}}};
  const auto read = FromMessage(ToMessage(offer));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpus, offer.gpus);
  EXPECT_EQ(read->library_version, offer.library_version);
  EXPECT_EQ(read->is_ncclx, offer.is_ncclx);
  EXPECT_EQ(read->why_none, offer.why_none);
  EXPECT_EQ(read->generations, offer.generations);
}

TEST(GpuOfferTest, WhatNoNodeHasIsRefused) {
  v1::GpuOffer message;
  message.set_gpus(kMostGpusOfNode + 1);
  EXPECT_THAT(FromMessage(message).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("1025 GPUs; 1024")));
  message.set_gpus(1);
  message.add_worlds()->set_generation(kLastGeneration + 1);
  EXPECT_THAT(FromMessage(message).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("of generation")));
  for (uint64_t set = 1; set <= 1024; ++set) message.add_worlds()->set_set(set);
  EXPECT_THAT(FromMessage(message).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("1025 worlds")));
}

// Of an older daemon, which says nothing of GPUs.
TEST(GpuOfferTest, NothingSaidIsNoGpu) {
  const auto read = FromMessage(v1::GpuOffer());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->gpus, 0U);
  EXPECT_FALSE(AgreeOnWorld({Node(1, 2), {.name = "old", .boot_id = 2, .offer = *read}}).ok());
}

TEST(GpuOfferTest, ASetHasNoOrder) {
  EXPECT_EQ(SetOf({{1, 4}, {2, 8}}), SetOf({{2, 8}, {1, 4}}));
  EXPECT_NE(SetOf({{1, 4}, {2, 8}}), SetOf({{1, 8}, {2, 4}}));
  EXPECT_NE(SetOf({{1, 4}, {2, 8}}), SetOf({{1, 4}, {2, 8}, {3, 8}}));
}

TEST(GpuOfferTest, TheFirstWorldOfASetIsTheFirst) {
  const auto generation = AgreeOnWorld({Node(1, 4), Node(2, 8)});
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(*generation, 1U);
}

// A world that is gone for one is gone for all.
TEST(GpuOfferTest, TheLatestGenerationCounts) {
  std::vector<GpuOffering> nodes = {Node(1, 4), Node(2, 8), Node(3, 8)};
  const uint64_t set = SetOf({{1, 4}, {2, 8}, {3, 8}});
  nodes[0].offer.generations = {{set, 2}, {set + 1, 9}};
  nodes[2].offer.generations = {{set, 3}};
  const auto generation = AgreeOnWorld(nodes);
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(*generation, 3U);
}

TEST(GpuOfferTest, WhoKeepsOthersFromItIsNamed) {
  std::vector<GpuOffering> nodes = {Node(1, 4), Node(2, 0)};
  EXPECT_THAT(AgreeOnWorld(nodes).status(), FailsWith(absl::StatusCode::kFailedPrecondition,
                                                      HasSubstr("on node2: spccld offers")));
  nodes[1].offer.why_none = "GPU 1: it broke";
  EXPECT_THAT(AgreeOnWorld(nodes).status(), FailsWith(absl::StatusCode::kFailedPrecondition,
                                                      HasSubstr("on node2: GPU 1: it broke")));
  EXPECT_THAT(
      AgreeOnWorld({Node(1, 4, 22809), Node(2, 4, 22703)}).status(),
      FailsWith(absl::StatusCode::kFailedPrecondition,
                AllOf(HasSubstr("NCCL 2.28.9 on node1"), HasSubstr("NCCL 2.27.3 on node2"))));
  nodes[1] = Node(2, 4);
  nodes[1].offer.is_ncclx = true;
  EXPECT_THAT(AgreeOnWorld(nodes).status(),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("NCCLX 2.28.9 on node2")));
}

}  // namespace
}  // namespace spccl::daemon
