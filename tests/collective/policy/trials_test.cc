#include "collective/policy/trials.h"

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::policy {
namespace {

// Runs `count` operations whose ways take `times`; says how often each way went.
std::vector<size_t> Repeat(Trials* trials, const std::vector<int64_t>& times, size_t count) {
  std::vector<size_t> went(times.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t way = trials->Next();
    ++went[way];
    trials->Took(way, times[way]);
  }
  return went;
}

TEST(TrialsTest, OneWayIsAlwaysTaken) {
  Trials trials(1);
  EXPECT_EQ(Repeat(&trials, {7}, 200), (std::vector<size_t>{200}));
  EXPECT_EQ(trials.TimeOf(0), 7);
}

TEST(TrialsTest, EveryWayIsTriedThenTheFastestIsTaken) {
  Trials trials(4);
  const std::vector<int64_t> times = {115, 100, 150, 105};
  EXPECT_FALSE(trials.settled());
  EXPECT_EQ(Repeat(&trials, times, 12), (std::vector<size_t>{3, 3, 3, 3}));
  // The closer to the best, the longer a look it needs.
  EXPECT_EQ(Repeat(&trials, times, 48), (std::vector<size_t>{12, 24, 0, 12}));
  EXPECT_FALSE(trials.settled());
  EXPECT_EQ(Repeat(&trials, times, 64), (std::vector<size_t>{0, 48, 0, 16}));
  EXPECT_TRUE(trials.settled());
  EXPECT_EQ(trials.best(), 1U);
  const std::vector<size_t> went = Repeat(&trials, times, 960);
  EXPECT_GE(went[1], 945U);
  for (const size_t other : {0, 2, 3}) EXPECT_GT(went[other], 0U);
}

TEST(TrialsTest, TheFirstIsKeptUnlessAnotherIsClearlyFaster) {
  Trials close(2), clear(2);
  Repeat(&close, {100, 98}, 100);
  Repeat(&clear, {100, 96}, 100);
  EXPECT_EQ(close.best(), 0U);
  EXPECT_EQ(clear.best(), 1U);
}

// The first operation sets up connections and touches memory: it may take any time.
TEST(TrialsTest, AColdFirstOperationDoesNotDecide) {
  Trials trials(2);
  trials.Took(trials.Next(), 100'000);
  Repeat(&trials, {50, 100}, 20);
  EXPECT_EQ(trials.best(), 0U);
}

TEST(TrialsTest, AHopelessWayIsTriedOnceAtFirst) {
  Trials trials(2);
  const std::vector<size_t> went = Repeat(&trials, {100, 1000}, Trials::kRetrialEvery);
  EXPECT_EQ(went[1], 1U);
}

TEST(TrialsTest, WhatDisturbsSomeOperationsDoesNotDecide) {
  Trials trials(2);
  std::minstd_rand random(1);
  size_t slower = 0;
  for (int i = 0; i < 5000; ++i) {
    const size_t way = trials.Next();
    const int64_t disturbed = random() % 4 == 0 ? 500 : 0;
    trials.Took(way, (way == 0 ? 110 : 100) + disturbed);
    if (i > 500 && trials.best() == 0) ++slower;
  }
  EXPECT_LT(slower, 450U);
}

// Ways that differ by less than what an operation's time varies by are told apart mostly, and what
// is taken is never far from the best.
TEST(TrialsTest, CloseWaysAreToldApartByALongerLook) {
  std::mt19937_64 random(TestSeed());
  constexpr int kTries = 300;
  int best = 0;
  for (int i = 0; i < kTries; ++i) {
    Trials trials(6);
    const std::array<int64_t, 6> base = {1080, 1060, 1000, 1100, 1070, 1300};
    while (!trials.settled()) {
      const size_t way = trials.Next();
      trials.Took(way, base[way] + static_cast<int64_t>(random() % 80));
    }
    best += trials.best() == 2 ? 1 : 0;
    EXPECT_LE(base[trials.best()], 1080);
  }
  EXPECT_GT(best, kTries * 9 / 10);
}

// By many looks, as a few would often find another one faster.
TEST(TrialsTest, WhatIsTakenOfCloseWaysIsOnTheWholeCloseToTheBest) {
  std::mt19937_64 random(TestSeed());
  std::lognormal_distribution<double> varies(0, 0.2);
  std::bernoulli_distribution disturbed(0.1);
  const std::array<double, 8> base = {1060, 1150, 1000, 1100, 1080, 1300, 1020, 1040};
  constexpr size_t kTries = 40, kKnown = 2000, kCount = 6000;
  double taken = 0;
  for (size_t run = 0; run < kTries; ++run) {
    Trials trials(base.size());
    for (size_t i = 0; i < kCount; ++i) {
      const size_t way = trials.Next();
      const double time = base[way] * varies(random) * (disturbed(random) ? 4 : 1);
      trials.Took(way, static_cast<int64_t>(time));
      if (i >= kKnown) taken += base[trials.best()];
    }
  }
  EXPECT_LE(taken / (kTries * (kCount - kKnown)), 1019);
}

TEST(TrialsTest, AWayThatBecomesFasterIsFound) {
  Trials trials(2);
  Repeat(&trials, {100, 150}, 100);
  ASSERT_EQ(trials.best(), 0U);
  Repeat(&trials, {100, 50}, 12 * Trials::kRetrialEvery);
  EXPECT_EQ(trials.best(), 1U);
}

TEST(TrialsTest, AWayThatBecomesSlowerIsLeft) {
  Trials trials(2);
  Repeat(&trials, {100, 150}, 100);
  Repeat(&trials, {200, 150}, 10);
  EXPECT_EQ(trials.best(), 1U);
}

TEST(TrialsTest, WhoFollowsGoesTheLeadersWayAndStillTriesTheOthers) {
  Trials trials(3);
  Repeat(&trials, {100, 110, 150}, 100);
  ASSERT_EQ(trials.best(), 0U);
  trials.Follow(1);
  const std::vector<size_t> went = Repeat(&trials, {100, 110, 150}, 640);
  EXPECT_GE(went[1], 630U);
  EXPECT_GT(went[0], 0U);
  EXPECT_GT(went[2], 0U);
  EXPECT_EQ(trials.best(), 0U);  // what is seen here
}

TEST(TrialsTest, NothingToldIsNoReasonToStop) {
  Trials trials(2);
  for (int i = 0; i < 1000; ++i) trials.Next();
  EXPECT_EQ(trials.best(), 0U);
  EXPECT_FALSE(trials.TimeOf(1).has_value());
}

// Once the rounds are over, one operation in kRetrialEvery goes another way, and as many again at
// most (and a few) where ways that take the same make what is fastest change all the time.
TEST(TrialsTest, LooksAreFew) {
  constexpr size_t kCount = 20'000;
  std::mt19937_64 random(TestSeed());
  for (const size_t ways : {2, 3, 5, 8}) {
    for (const int64_t jitter : {0, 30, 300}) {
      Trials trials(ways);
      size_t looks = 0;
      for (size_t i = 0; i < kCount; ++i) {
        const bool over = trials.settled();
        const size_t best = trials.best(), way = trials.Next();
        if (over && way != best) ++looks;
        const int64_t base = jitter == 0 && way != 0 ? 150 : 100;
        trials.Took(way, base + static_cast<int64_t>(random() % (jitter + 1)));
      }
      const size_t share = kCount / Trials::kRetrialEvery + Trials::kLook;
      EXPECT_GE(looks, share / 3) << ways << " ways, jitter " << jitter;
      EXPECT_LE(looks, jitter == 0 ? share : 2 * share + 5 * Trials::kLook)
          << ways << " ways, jitter " << jitter;
    }
  }
}

// Of what takes many times as long a look is shorter.
TEST(TrialsTest, AHopelessWayIsLookedAtForTwoOperations) {
  Trials trials(2);
  size_t looks = 0;
  for (size_t i = 0; i < 20 * Trials::kLook * Trials::kRetrialEvery; ++i) {
    const size_t way = trials.Next();
    if (way == 1) ++looks;
    trials.Took(way, way == 1 ? 1000 : 100);
  }
  EXPECT_LE(looks, 1 + 2 * 20U);
  EXPECT_GE(looks, 2 * 18U);
}

// What made the fastest way slow for a while may be over.
TEST(TrialsTest, AWayThatWasLeftIsSoonLookedAtAgain) {
  Trials trials(5);
  Repeat(&trials, {150, 100, 150, 150, 150}, 320);
  ASSERT_EQ(trials.best(), 1U);
  Repeat(&trials, {150, 400, 150, 150, 150}, 30);
  ASSERT_NE(trials.best(), 1U);
  Repeat(&trials, {150, 100, 150, 150, 150}, 100);
  EXPECT_EQ(trials.best(), 1U);
}

// Nodes that look at a way while others go another would see what neither takes.
TEST(TrialsTest, WhoHearsALittleLaterLooksInTheSameOperations) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kChange = 1500, kCount = 40 * kChange, kLate = 2;
  Trials leader(3), follower(3);
  std::array<size_t, kLate> told{};  // on their way
  size_t differ = 0, fastest = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (i % kChange == 0) fastest = random() % 3;
    const size_t way = leader.Next(), its = follower.Next();
    if (way != its) ++differ;
    const auto time = [&](size_t of) {
      return (of == fastest ? 100 : 140) + static_cast<int64_t>(random() % 10);
    };
    leader.Took(way, time(way));
    follower.Took(its, time(its));
    if (i > kLate && leader.settled()) follower.Follow(told[i % kLate]);
    told[i % kLate] = leader.best();
  }
  EXPECT_LE(differ, kCount / 100);
}

}  // namespace
}  // namespace spccl::policy
