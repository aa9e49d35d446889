#include "collective/transport/ucx/spinner.h"

#include <gtest/gtest.h>

namespace spccl::transport::ucx {
namespace {

constexpr int64_t kUs = 1'000;

// How long it spins after a find at `now`, in steps of 1 us.
int64_t SpinsFor(Spinner* spinner, int64_t now, uint64_t switches = 0) {
  spinner->Found(now);
  int64_t us = 0;
  while (us < 1000 && spinner->LookAgain(now + us * kUs, switches)) ++us;
  return us;
}

TEST(SpinnerTest, SpinsForAWhileAfterAFindAndThenSleeps) {
  Spinner spinner(50 * kUs);
  EXPECT_EQ(SpinsFor(&spinner, 0), 50);
  EXPECT_FALSE(spinner.LookAgain(60 * kUs, 0));
  Spinner never(0);
  EXPECT_EQ(SpinsFor(&never, 0), 0);
}

TEST(SpinnerTest, SpinsLessWhileItIsInVainAndMoreWhenItPays) {
  Spinner spinner(64 * kUs);
  EXPECT_EQ(SpinsFor(&spinner, 0), 64);
  EXPECT_EQ(SpinsFor(&spinner, 1'000 * kUs), 32);
  EXPECT_EQ(SpinsFor(&spinner, 2'000 * kUs), 16);
  // Found while spinning: twice as long the next time.
  spinner.Found(3'000 * kUs);
  EXPECT_TRUE(spinner.LookAgain(3'001 * kUs, 0));
  EXPECT_EQ(SpinsFor(&spinner, 3'002 * kUs), 16);
  EXPECT_EQ(SpinsFor(&spinner, 4'000 * kUs), 8);
  EXPECT_EQ(SpinsFor(&spinner, 5'000 * kUs), 4);
  EXPECT_EQ(SpinsFor(&spinner, 6'000 * kUs), 2);
  // In vain so often that it sleeps at once; from time to time it tries anew.
  int tries = 0;
  for (int round = 0; round < 64; ++round)
    tries += SpinsFor(&spinner, (7 + round) * 1'000 * kUs) > 0;
  EXPECT_GT(tries, 0);
  EXPECT_LT(tries, 32);
}

TEST(SpinnerTest, GivesTheCoreToWhoWantsIt) {
  Spinner spinner(50 * kUs);
  spinner.Found(0);
  EXPECT_TRUE(spinner.LookAgain(1 * kUs, 5));
  EXPECT_FALSE(spinner.LookAgain(2 * kUs, 6));  // another ran meanwhile
  EXPECT_EQ(SpinsFor(&spinner, 500 * kUs, 6), 0);
  EXPECT_GT(SpinsFor(&spinner, 2'000 * kUs, 6), 0);
}

}  // namespace
}  // namespace spccl::transport::ucx
