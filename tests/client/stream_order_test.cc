#include "client/stream_order.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include "client/process.h"
#include "gtest/gtest.h"
#include "tests/client/client_test.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::client {
namespace {

class StreamOrderTest : public testing::ClientTest {
 protected:
  StreamOrderTest() {
    const std::shared_ptr<Session> session = Process::Get().LiveSession().value();
    order_ = StreamOrder::Open(*session, gpu_.driver(), gpu_.context()).value();
  }

  const testing::GpuProgram gpu_{testing::LoadFakeDriver()};
  std::shared_ptr<StreamOrder> order_;
};

TEST_F(StreamOrderTest, ACommunicatorThatIsAheadLeavesTheOthersTheirShare) {
  std::vector<StreamOrder::Use> uses;
  while (const auto use = order_->Take(/*comm_id=*/1, shm::kEagerSlots / 2)) uses.push_back(*use);
  EXPECT_EQ(uses.size(), shm::kEagerSlots / 2 - 1);
  EXPECT_TRUE(order_->Take(2, shm::kEagerSlots / 2));
  order_->GiveBack(uses.back(), /*was_passed=*/true);
  EXPECT_TRUE(order_->Take(1, shm::kEagerSlots / 2));
  EXPECT_FALSE(order_->Take(1, shm::kEagerSlots / 2));
}

TEST_F(StreamOrderTest, OneThatIsMadeLaterFindsSome) {
  for (uint32_t comm_id = 1, left = shm::kEagerSlots; comm_id <= 8; ++comm_id, left /= 2) {
    uint32_t has = 0;
    while (order_->Take(comm_id, shm::kEagerSlots)) ++has;
    EXPECT_EQ(has, left / 2) << comm_id;
  }
  EXPECT_TRUE(order_->Take(9, shm::kEagerSlots));
}

// Whichever rule says that it has its share.
TEST_F(StreamOrderTest, OneThatHasItsShareMayHaveOneMore) {
  using Room = StreamOrder::Room;
  uint32_t comm_id = 1;
  for (const uint32_t share : {10u, shm::kEagerSlots}) {
    while (order_->Take(comm_id, share)) continue;
    EXPECT_TRUE(order_->Take(comm_id + 1, share)) << share;
    EXPECT_TRUE(order_->Take(comm_id, share, Room::kOneMore)) << share;
    EXPECT_FALSE(order_->Take(comm_id, share)) << share;
    comm_id += 2;
  }
}

TEST_F(StreamOrderTest, WhoeverHasSomeLeavesOneToEachThatHasNone) {
  constexpr uint32_t kComms = 6, kShare = shm::kEagerSlots / kComms;
  while (order_->Take(/*comm_id=*/1, kShare, StreamOrder::Room::kOneMore)) continue;
  for (uint32_t comm_id = 2; comm_id <= kComms; ++comm_id) {
    EXPECT_TRUE(order_->Take(comm_id, kShare)) << comm_id;
    while (order_->Take(comm_id, kShare)) continue;
  }
}

TEST_F(StreamOrderTest, ManyCommunicatorsHaveOneEach) {
  for (uint32_t comm_id = 1; comm_id <= shm::kEagerSlots; ++comm_id) {
    EXPECT_TRUE(order_->Take(comm_id, 1)) << comm_id;
    EXPECT_FALSE(order_->Take(comm_id, 1, StreamOrder::Room::kOneMore)) << comm_id;
  }
}

TEST_F(StreamOrderTest, OneWhoseShareHasShrunkMayHaveOneMore) {
  while (order_->Take(1, 80)) continue;
  EXPECT_FALSE(order_->Take(1, 60));
  EXPECT_TRUE(order_->Take(1, 60, StreamOrder::Room::kOneMore));
}

TEST_F(StreamOrderTest, WhatAStreamHasNotPassedIsInUse) {
  const auto use = order_->Take(1, 1);
  ASSERT_TRUE(use);
  order_->GiveBack(*use, /*was_passed=*/false);
  EXPECT_FALSE(order_->Take(1, 1));
  order_->StoreReady(*use);
  EXPECT_FALSE(order_->Take(1, 1));
  order_->StoreDone(*use);
  EXPECT_TRUE(order_->Take(1, 1));
}

}  // namespace
}  // namespace spccl::client
