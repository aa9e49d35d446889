// Lossy codecs against the real daemon, on ranks that exchange frames.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gtest/gtest.h"
#include "tests/client/rank_world.h"

namespace spccl::testing {
namespace {

// Values that are no multiples of any quantum; *error: the largest distance from the exact sum.
bool SumLossily(const RankWorld& world, size_t count, double* error) {
  std::vector<double> send(count), recv(count);
  for (size_t i = 0; i < count; ++i) {
    send[i] = std::sin(0.001 * static_cast<double>(i)) * (world.rank + 1);
  }
  if (spcclAllReduce(send.data(), recv.data(), count, spcclFloat64, spcclSum, world.comm,
                     nullptr) != spcclSuccess) {
    return false;
  }
  *error = 0;
  const double weight = world.ranks * (world.ranks + 1) / 2.0;
  for (size_t i = 0; i < count; ++i) {
    *error =
        std::max(*error, std::fabs(recv[i] - std::sin(0.001 * static_cast<double>(i)) * weight));
  }
  return true;
}

TEST(EndToEnd, LossySendsOnRequestOnly) {
  EXPECT_TRUE(RunRanks(
      3,
      [](const RankWorld& world, const MultiProcess::Report& report) {
        constexpr size_t kCount = 100'000;
        constexpr double kBound = 1e-3;
        double error = 0;
        if (!SumLossily(world, kCount, &error) || error > 1e-12) return __LINE__;
        world.meet();  // a codec is of all operations that have not been called yet
        spcclCodecOptions options{.bound = -1, .relative = 0, .seed = 0};
        if (spcclCommSetCodec(world.comm, spcclCodecErrorBound, &options) != spcclInvalidArgument) {
          return __LINE__;
        }
        options.bound = kBound;
        if (spcclCommSetCodec(world.comm, spcclCodecErrorBound, &options) != spcclSuccess) {
          report(std::string(spcclGetLastError(world.comm)) + "\n");
          return __LINE__;
        }
        if (!SumLossily(world, kCount, &error)) return __LINE__;
        if (error > world.ranks * kBound * 1.0001 || error < kBound / 10) return __LINE__;
        int integer = 1;
        if (spcclAllReduce(&integer, &integer, 1, spcclInt32, spcclSum, world.comm, nullptr) !=
            spcclInvalidUsage) {
          return __LINE__;
        }
        world.meet();
        if (spcclCommSetCodec(world.comm, spcclCodecQsgd8, nullptr) != spcclSuccess) {
          return __LINE__;
        }
        if (!SumLossily(world, kCount, &error)) return __LINE__;
        if (error > 6.0 / 127 * 1.01 || error < 1e-3) return __LINE__;
        world.meet();
        if (spcclCommSetCodec(world.comm, spcclCodecAuto, nullptr) != spcclSuccess) return __LINE__;
        if (!SumLossily(world, kCount, &error) || error > 1e-12) return __LINE__;
        return 0;
      },
      {{"SPCCL_ALGO", "ring"}}));
}

// What one program's operations with QSGD have come to; shared with the ranks' processes.
struct Steps {
  static constexpr size_t kCount = 5000;
  static constexpr int kOperations = 150;
  double first[kCount], last[kCount];  // of rank 0
  double sums[kCount];
};

double ExactAt(size_t i) {
  return std::sin(0.01 * static_cast<double>(i));
}

int TakeSteps(const RankWorld& world, Steps* steps) {
  const spcclCodecOptions options{.bound = 0, .relative = 0, .seed = 7};
  if (spcclCommSetCodec(world.comm, spcclCodecQsgd4, &options) != spcclSuccess) return __LINE__;
  std::vector<double> send(Steps::kCount), recv(Steps::kCount);
  for (size_t i = 0; i < send.size(); ++i) send[i] = ExactAt(i) / world.ranks;
  for (int step = 0; step < Steps::kOperations; ++step) {
    if (spcclAllReduce(send.data(), recv.data(), send.size(), spcclFloat64, spcclSum, world.comm,
                       nullptr) != spcclSuccess) {
      return __LINE__;
    }
    if (world.rank != 0) continue;
    for (size_t i = 0; i < recv.size(); ++i) steps->sums[i] += recv[i];
    std::copy(recv.begin(), recv.end(), step == 0 ? steps->first : steps->last);
  }
  return 0;
}

// The same program twice.
TEST(EndToEnd, QsgdDrawsAnewInEveryOperationAndAlikeInEveryRun) {
  Steps* const runs = static_cast<Steps*>(
      mmap(nullptr, 2 * sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(runs, MAP_FAILED);
  for (Steps* steps : {&runs[0], &runs[1]}) {
    ASSERT_TRUE(RunRanks(3,
                         [&](const RankWorld& world, const MultiProcess::Report&) {
                           return TakeSteps(world, steps);
                         },
                         {{"SPCCL_ALGO", "ring"}}));
  }
  EXPECT_EQ(std::memcmp(&runs[0], &runs[1], sizeof(Steps)), 0);
  // An element is off by at most half a level in its standard deviation, and the mean by a
  // twelfth of that; six times that. Were all draws alike, some would be off by nearly a level.
  constexpr double kLevel = 1.0 / 7;
  const double near = 6 * kLevel / 2 / std::sqrt(Steps::kOperations);
  size_t moved = 0;
  for (size_t i = 0; i < Steps::kCount; ++i) {
    ASSERT_NEAR(runs[0].sums[i] / Steps::kOperations, ExactAt(i), near) << i;
    moved += runs[0].first[i] != runs[0].last[i] ? 1 : 0;
  }
  EXPECT_GT(moved, Steps::kCount / 5);
  munmap(runs, 2 * sizeof(Steps));
}

}  // namespace
}  // namespace spccl::testing
