#include "collective/runtime/slice_gate.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

TEST(SliceGateTest, HandsOutEverySliceOnceAndEndsOnce) {
  SliceGate gate(3);
  EXPECT_EQ(gate.Claim(), 0U);
  EXPECT_EQ(gate.Claim(), 1U);
  EXPECT_FALSE(gate.Complete());
  EXPECT_EQ(gate.Claim(), 2U);
  EXPECT_EQ(gate.Claim(), std::nullopt);
  EXPECT_FALSE(gate.Complete());
  EXPECT_TRUE(gate.Complete());
  EXPECT_FALSE(gate.Close());
}

TEST(SliceGateTest, CloseEndsWhatNobodyClaimed) {
  SliceGate gate(3);
  EXPECT_TRUE(gate.Close());
  EXPECT_FALSE(gate.Close());
  EXPECT_EQ(gate.Claim(), std::nullopt);
}

TEST(SliceGateTest, AClaimedSliceEndsAfterClose) {
  SliceGate gate(3);
  ASSERT_TRUE(gate.Claim().has_value());
  EXPECT_FALSE(gate.Close());
  EXPECT_TRUE(gate.Complete());
}

TEST(SliceGateTest, CloseAfterClaimsPastTheEnd) {
  SliceGate gate(1);
  ASSERT_TRUE(gate.Claim().has_value());
  EXPECT_FALSE(gate.Claim().has_value());
  EXPECT_FALSE(gate.Close());
  EXPECT_FALSE(gate.Claim().has_value());
  EXPECT_TRUE(gate.Complete());
}

TEST(SliceGateTest, ExactlyOneThreadEndsIt) {
  for (int round = 0; round < 200; ++round) {
    SliceGate gate(50);
    std::atomic<int> ends{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        while (gate.Claim()) {
          if (gate.Complete()) ++ends;
          if (t == 0 && round % 2 == 0 && gate.Close()) ++ends;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(ends, 1) << "round " << round;
  }
}

}  // namespace
}  // namespace spccl::runtime
