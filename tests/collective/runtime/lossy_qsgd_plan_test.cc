// QSGD through whole plans.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/collective/runtime/lossy_case.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

void RunQsgd(Format format, uint64_t seed, const std::vector<Bytes>& inputs, Outcome* outcome) {
  Case c;
  c.algorithm = Algorithm::kSplit;
  c.op = {.kind = OpKind::kAllReduce, .count = 40000};
  c.nodes = OneRankANode(4);
  c.lossy = {.format = format, .seed = seed};
  c.slice_bytes = size_t{32} << 10;
  RunCase(c, inputs, outcome);
  ExpectAllAlike(c, outcome->received);
}

// SparCML's dense phase: partial sums travel exactly, the results once, in levels.
TEST(LossyPlanTest, QsgdQuantisesTheAllGatherOfAnAllReduce) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<double> noise;
  std::vector<Bytes> inputs;
  std::vector<double> sums(40000);
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<float> x(sums.size());
    for (size_t i = 0; i < x.size(); ++i) sums[i] += x[i] = static_cast<float>(noise(random));
    inputs.push_back(BytesOf(x));
  }
  for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
    SCOPED_TRACE(NameOf(format));
    Outcome first, again, other;
    RunQsgd(format, 1, inputs, &first);
    RunQsgd(format, 1, inputs, &again);
    RunQsgd(format, 2, inputs, &other);
    EXPECT_TRUE(first.received == again.received) << "the seed makes it reproducible";
    EXPECT_FALSE(first.received == other.received);
    const OpStats& stats = first.stats;
    const auto lossy = static_cast<size_t>(policy::Reason::kLossy);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kReduceScatter)][lossy], 0u);
    EXPECT_EQ(stats.decisions[static_cast<size_t>(Phase::kAllGather)][lossy],
              stats.sends_by_format[static_cast<size_t>(format)]);
    EXPECT_GT(stats.sends_by_format[static_cast<size_t>(format)], 0u);
    const double scale = 12.0 / ((1 << (QsgdBits(format) - 1)) - 1);  // of sums of four up to 3
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(At<float>(first.received[0], i), sums[i], scale * 2);
    }
  }
}

}  // namespace
}  // namespace spccl::runtime
