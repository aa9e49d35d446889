#include "base/fair_clock.h"

#include "gtest/gtest.h"

namespace spccl {
namespace {

// Gives `turns` turns of `cost` to whoever is first; returns how many were a's.
int CountTurns(FairClock* clock, FairClock::Account* a, uint32_t weight_a, FairClock::Account* b,
               uint32_t weight_b, int turns, double cost) {
  int of_a = 0;
  for (int i = 0; i < turns; ++i) {
    const bool is_a = a->next <= b->next;
    of_a += is_a;
    clock->Begin(is_a ? a : b, cost, is_a ? weight_a : weight_b);
  }
  return of_a;
}

TEST(FairClockTest, TurnsGoByWeight) {
  FairClock clock;
  FairClock::Account a, b;
  EXPECT_NEAR(CountTurns(&clock, &a, 2, &b, 1, 300, 5), 200, 1);
  EXPECT_NEAR(CountTurns(&clock, &a, 1, &b, 4, 300, 5), 60, 2);
}

TEST(FairClockTest, WhoWakesIsFirstButHasSavedNothing) {
  FairClock clock;
  FairClock::Account idle, busy;
  for (int i = 0; i < 1000; ++i) clock.Begin(&busy, 5, 1);
  clock.Wake(&idle);
  EXPECT_LT(idle.next, busy.next);
  EXPECT_NEAR(CountTurns(&clock, &idle, 1, &busy, 1, 100, 5), 50, 1);
}

TEST(FairClockTest, WhoHadTooMuchKeepsItsDebt) {
  FairClock clock;
  FairClock::Account a, b;
  clock.Begin(&a, 100, 1);
  EXPECT_FALSE(clock.IsSettled(a));
  clock.Wake(&a);  // comes again at once
  EXPECT_EQ(CountTurns(&clock, &a, 1, &b, 1, 10, 10), 0);
  clock.Begin(&b, 10, 1);
  EXPECT_TRUE(clock.IsSettled(a));
}

TEST(FairClockTest, WhatWasExpectedIsMadeGood) {
  FairClock clock;
  FairClock::Account a, b;
  clock.Begin(&a, 10, 2);
  FairClock::Charge(&a, 30 - 10, 2);
  clock.Begin(&b, 10, 1);
  FairClock::Charge(&b, 5 - 10, 1);
  EXPECT_EQ(a.next, 15);
  EXPECT_EQ(b.next, 5);
}

}  // namespace
}  // namespace spccl
