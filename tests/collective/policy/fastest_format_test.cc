#include "collective/policy/fastest_format.h"

#include <algorithm>

#include "collective/policy/wire_format.h"
#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

Costs Link(double rate, double cores = 2) {
  Costs costs;
  costs.link_rate = rate;
  costs.cores = cores;
  return costs;
}

TEST(FastestFormatTest, OnASlowLinkTheSmallest) {
  for (double density = 0.0001; density < 0.9; density *= 1.5) {
    const FormatChoice choice = FastestFormat(Link(1e6), 4, density);
    const double least = std::min({BytesPerElement(Format::kPici, 4, density),
                                   BytesPerElement(Format::kCoo, 4, density),
                                   BytesPerElement(Format::kGap, 4, density)});
    EXPECT_EQ(BytesPerElement(choice.format, 4, density), least) << density;
  }
}

TEST(FastestFormatTest, OnAFastLinkTheLeastWork) {
  EXPECT_EQ(FastestFormat(Link(1e12), 4, 0.3).format, Format::kPici);
  EXPECT_NE(FastestFormat(Link(1e12), 4, 0.01).format, Format::kGap);
}

TEST(FastestFormatTest, FewerCoresMakeWorkDearer) {
  const Costs many = Link(0.5e9, 64), few = Link(0.5e9, 0.25);
  EXPECT_EQ(FastestFormat(many, 4, 0.1).format, Format::kGap);
  EXPECT_EQ(FastestFormat(few, 4, 0.1).format, Format::kPici);
}

TEST(FastestFormatTest, TellsTheRunnerUp) {
  for (const double rate : {1e7, 1e8, 1e9, 1e10}) {
    for (double density = 0.001; density < 1; density *= 2) {
      const FormatChoice choice = FastestFormat(Link(rate), 4, density);
      EXPECT_NE(choice.format, choice.runner_up);
      EXPECT_LE(choice.seconds, choice.runner_up_seconds);
      for (const Format format : {Format::kPici, Format::kCoo, Format::kGap}) {
        const double seconds = SecondsAnElement(Link(rate), format, 4, density);
        EXPECT_GE(seconds, choice.seconds);
        if (format != choice.format) {
          EXPECT_GE(seconds, choice.runner_up_seconds);
        }
      }
    }
  }
}

TEST(WireFormatTest, OrDenseWhereThatIsSmaller) {
  const Costs costs = Link(1e8);
  EXPECT_EQ(WireFormat(Codec::kAuto, costs, 4, 0.01), Format::kGap);
  EXPECT_EQ(WireFormat(Codec::kAuto, costs, 4, 0.999), Format::kDense);
  EXPECT_EQ(WireFormat(Codec::kCoo, costs, 4, 0.4), Format::kCoo);
  EXPECT_EQ(WireFormat(Codec::kCoo, costs, 4, 0.5), Format::kDense);
  EXPECT_EQ(WireFormat(Codec::kPici, costs, 4, 0.01), Format::kPici);
  EXPECT_EQ(WireFormat(Codec::kPiciColumn, costs, 4, 0.01), Format::kPiciColumn);
  EXPECT_EQ(WireFormat(Codec::kDense, costs, 4, 0), Format::kDense);
}

}  // namespace
}  // namespace spccl::policy
