// Trials on a link that lets bursts pass: a token bucket, as a shaper or a provider's network has.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <random>
#include <vector>

#include "collective/policy/trials.h"
#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace spccl::policy {
namespace {

constexpr double kKibibyte = 1024;
constexpr double kRate = 125;  // bytes a microsecond: 1 Gbit/s

// Bytes pass at once for as long as there is credit, then at the link's rate. What the link is not
// used for is credit, up to the bucket's size.
class Link {
 public:
  explicit Link(double bucket) : bucket_(bucket), credit_(bucket) {}

  void Idle(double us) { credit_ = std::min(bucket_, credit_ + us * kRate); }
  // Says what it takes if cores are busy for so long beside it.
  double Pass(double bytes, double core_us) {
    const double us = std::max(core_us, (bytes - credit_) / kRate);
    credit_ -= bytes;
    Idle(us);
    return us;
  }

 private:
  double bucket_, credit_;
};

struct Cost {
  double bytes, core_us;  // of frames; to encode and decode them
  bool operator==(const Cost&) const = default;
};
// An all-reduce of 1 MiB between 2 nodes. Coo needs cores for less long than pici, and the link for
// half as long again.
constexpr Cost kDense = {1049e3, 500}, kPici = {137e3, 620}, kCoo = {210e3, 560},
               kGap = {131e3, 900};

// How a program uses it: so many operations at a time, then none for a while.
struct Use {
  double bucket = 256 * kKibibyte;
  size_t burst = 4;  // 0: without end
  double pause_us = 3000;
  size_t before = 0;        // operations before the first burst
  double jitter = 0.05;     // of cores
  double disturbed = 0.03;  // of operations, by up to 800 us
};

std::ostream& operator<<(std::ostream& out, const Use& use) {
  return out << "bucket " << use.bucket / kKibibyte << " KiB, bursts of " << use.burst
             << ", pauses of " << use.pause_us << " us after " << use.before << ", seed "
             << TestSeed();
}

class Program {
 public:
  Program(const Use& use, uint64_t seed) : use_(use), link_(use.bucket), random_(seed) {}

  double Do(const Cost& cost) {
    if (use_.burst != 0 && done_++ % use_.burst == use_.before % use_.burst) {
      link_.Idle(use_.pause_us * (1 + 0.1 * Share()));
    }
    double us = link_.Pass(cost.bytes, cost.core_us * (1 + use_.jitter * Share()));
    if (Share() < use_.disturbed) {
      const double for_us = 800 * Share();
      link_.Idle(for_us);
      us += for_us;
    }
    link_.Idle(30);  // to the next one
    return us;
  }

 private:
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  const Use use_;
  Link link_;
  std::mt19937_64 random_;
  size_t done_ = 0;
};

double Mean(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

constexpr size_t kOperations = 1200;

// Of the fastest way, if that is always gone.
double BestOf(const Use& use, const std::vector<Cost>& ways) {
  std::vector<double> means;
  for (const Cost& way : ways) {
    Program program(use, TestSeed());
    std::vector<double> times;
    for (size_t i = 0; i < kOperations; ++i) times.push_back(program.Do(way));
    means.push_back(Mean(times));
  }
  return *std::min_element(means.begin(), means.end());
}

// Operations as trials say, for as many as asked for.
std::vector<double> Go(Program* program, Trials* trials, const std::vector<Cost>& ways,
                       size_t count) {
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    const size_t way = trials->Next();
    times.push_back(program->Do(ways[way]));
    trials->Took(way, static_cast<int64_t>(times.back() * 1000));
  }
  return times;
}

// Of what is gone once the rounds are over.
double MeanOf(const Use& use, const std::vector<Cost>& ways) {
  Program program(use, TestSeed());
  Trials trials(ways.size());
  Go(&program, &trials, ways, Trials::kRounds * ways.size());
  return Mean(Go(&program, &trials, ways, kOperations));
}

// Each is the first somewhere, and followed by others.
const std::vector<std::vector<Cost>> kOrders = {{kGap, kPici, kCoo, kGap},
                                                {kCoo, kGap, kPici},
                                                {kPici, kCoo},
                                                {kCoo, kPici},
                                                {kGap, kDense, kPici, kPici, kCoo, kCoo, kGap}};

struct Ratio {
  double mean, worst;
};
// Trials over the best way, of all orders and of all phases of the rounds in bursts.
Ratio OverBest(Use use) {
  std::vector<double> ratios;
  for (use.before = 0; use.before < std::max<size_t>(1, use.burst); ++use.before) {
    for (const std::vector<Cost>& ways : kOrders) {
      ratios.push_back(MeanOf(use, ways) / BestOf(use, ways));
    }
  }
  return {Mean(ratios), *std::max_element(ratios.begin(), ratios.end())};
}

// A way is not taken for what it does on credit, nor left out for what another one left of it.
TEST(TrialsLinkTest, ABurstThatPassesDoesNotDecide) {
  for (const double bucket : {64 * kKibibyte, 128 * kKibibyte, 256 * kKibibyte}) {
    for (const size_t burst : {3, 4, 5, 8}) {
      const Use use = {.bucket = bucket, .burst = burst, .pause_us = 2000};
      const Ratio ratio = OverBest(use);
      EXPECT_LE(ratio.mean, 1.06) << use;
      // Half of coo's operations have credit, which is enough for all but one of pici's.
      if (burst == 4) {
        EXPECT_LE(ratio.worst, 1.3) << use;
      }
    }
  }
}

// Where most operations of a burst pass on credit, what most take says less of the others.
TEST(TrialsLinkTest, WhereMostOfABurstPassesLittleIsLost) {
  EXPECT_LE(OverBest({.bucket = 512 * kKibibyte, .burst = 3, .pause_us = 2000}).mean, 1.16);
  EXPECT_LE(OverBest({.bucket = 512 * kKibibyte, .burst = 5, .pause_us = 6000}).mean, 1.16);
  EXPECT_LE(OverBest({.bucket = 1024 * kKibibyte, .burst = 3, .pause_us = 2000}).mean, 1.16);
}

TEST(TrialsLinkTest, WhoNeverPausesHasNoCreditThatDecides) {
  for (const double bucket : {64 * kKibibyte, 256 * kKibibyte, 1024 * kKibibyte}) {
    const Use use = {.bucket = bucket, .burst = 0};
    EXPECT_LE(OverBest(use).worst, 1.07) << use;
  }
}

// What 1 MiB takes with 99% of zeros: coo is the smaller one there, and the faster.
constexpr Cost kSparserPici = {43e3, 560}, kSparserCoo = {21e3, 470}, kSparserGap = {16e3, 700};

TEST(TrialsLinkTest, AnotherDensityIsFollowedBothWays) {
  const std::vector<Cost> dense = {kGap, kPici, kCoo, kGap};
  const std::vector<Cost> sparse = {kSparserGap, kSparserPici, kSparserCoo, kSparserGap};
  // Some looks at each: one that is disturbed says nothing.
  const size_t enough = 4 * Trials::kLook * Trials::kRetrialEvery * dense.size();
  for (const size_t burst : {0, 3, 4}) {
    const Use use = {.burst = burst};
    Program program(use, TestSeed());
    Trials trials(dense.size());
    Go(&program, &trials, dense, Trials::kRounds * dense.size());
    for (const std::vector<Cost>& now : {sparse, dense, sparse, dense}) {
      Go(&program, &trials, now, enough);
      const double mean = Mean(Go(&program, &trials, now, kOperations));
      EXPECT_LE(mean, 1.12 * BestOf(use, now)) << use << (now == sparse ? ", sparser" : "");
    }
  }
}

}  // namespace
}  // namespace spccl::policy
