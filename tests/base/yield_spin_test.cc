#include "base/yield_spin.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace spccl {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

TEST(YieldSpinTest, EndsWithWhatItWaitsFor) {
  YieldSpin spin;
  int looks = 0;
  EXPECT_TRUE(spin.Until([&] { return ++looks == 1; }, 0));
  EXPECT_EQ(looks, 1);
}

TEST(YieldSpinTest, GivesUpNoSoonerThanAskedUnlessTheCoreIsLost) {
  YieldSpin spin;
  const int64_t begin_ns = MonotonicNanos();
  const bool found = spin.Until([] { return false; }, kMillisecond);
  EXPECT_FALSE(found);
  // A lost core ends it too, and is longer than the shortest that counts as one.
  EXPECT_GE(MonotonicNanos() - begin_ns, 100'000);
}

TEST(YieldSpinTest, RestsAfterLossesOfWhichFewGainsAreBetween) {
  YieldSpin spin;
  int64_t now_ns = 1;
  for (int loss = 0; loss < 3; ++loss) {
    spin.NoteLoss(now_ns);
    EXPECT_FALSE(spin.Rests(now_ns)) << loss;
  }
  spin.NoteLoss(now_ns);
  EXPECT_TRUE(spin.Rests(now_ns));
  now_ns += YieldSpin::kRestNs;
  EXPECT_FALSE(spin.Rests(now_ns));
  spin.NoteLoss(now_ns);  // it is as it was
  EXPECT_TRUE(spin.Rests(now_ns));
}

TEST(YieldSpinTest, SpinsOnWhereLossesAreRare) {
  YieldSpin spin;
  for (int loss = 0; loss < 100; ++loss) {
    spin.NoteLoss(1);
    for (int gain = 0; gain < YieldSpin::kLoss; ++gain) spin.NoteGain();
  }
  EXPECT_FALSE(spin.Rests(1));
}

TEST(YieldSpinTest, LooksOnceWhileItRests) {
  YieldSpin spin;
  for (int loss = 0; loss < 4; ++loss) spin.NoteLoss(MonotonicNanos() + 60'000 * kMillisecond);
  int looks = 0;
  EXPECT_FALSE(spin.Until([&] { return ++looks > 1; }, 60'000 * kMillisecond));
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace spccl
