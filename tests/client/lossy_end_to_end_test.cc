// Lossy codecs against the real daemon, on ranks that exchange frames.
#include <algorithm>
#include <cmath>
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

}  // namespace
}  // namespace spccl::testing
