#include "collective/policy/fastest_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collective/policy/wire_format.h"
#include "gtest/gtest.h"
#include "kernels/host/codec.h"

namespace spccl::policy {
namespace {

Costs Of(double rate, double cores = 2) {
  Costs costs;
  costs.link_rate = rate;
  costs.cores = cores;
  return costs;
}

Sending SendingAt(double density, Link link = Link::kInter) {
  return {.link = link, .density = density};
}

Format Fastest(const Costs& costs, double density) {
  return Compare(costs, Codec::kAuto, SendingAt(density)).sparse.format;
}

TEST(FastestFormatTest, OnASlowLinkTheSmallest) {
  for (double density = 0.0001; density < 0.9; density *= 1.5) {
    const double least = std::min({BytesPerElement(Format::kPici, 4, density),
                                   BytesPerElement(Format::kCoo, 4, density),
                                   BytesPerElement(Format::kGap, 4, density)});
    EXPECT_EQ(BytesPerElement(Fastest(Of(1e6), density), 4, density), least) << density;
  }
}

TEST(FastestFormatTest, OnAFastLinkTheLeastWork) {
  EXPECT_EQ(Fastest(Of(1e12), 0.3), Format::kPici);
  EXPECT_NE(Fastest(Of(1e12), 0.01), Format::kGap);
}

TEST(FastestFormatTest, FewerCoresMakeWorkDearer) {
  EXPECT_EQ(Fastest(Of(0.5e9, 64), 0.1), Format::kGap);
  EXPECT_EQ(Fastest(Of(0.5e9, 0.25), 0.1), Format::kPici);
}

// A plain oracle: each format's time written out, and the least taken.
double OracleSeconds(const Costs& costs, Format format, const Sending& what) {
  const double bytes = BytesPerElement(format, what.width, what.density);
  const auto linear = [&](double rate_0, double rate_1) {
    return what.width * ((1 - what.density) / rate_0 + what.density / rate_1);
  };
  double work;
  if (format == Format::kDense) {
    work = what.width / costs.memory_rate +
           what.width / (what.combines ? costs.reduce_rate : costs.memory_rate);
  } else {
    const CodecRates& rates = costs.Of(format);
    work = linear(rates.encode_0, rates.encode_1) + (what.combines
                                                         ? linear(rates.combine_0, rates.combine_1)
                                                         : linear(rates.decode_0, rates.decode_1));
  }
  if (what.link == Link::kInter) work += bytes * kCopiesOnTheWay / costs.memory_rate;
  const double link = what.link == Link::kInter ? bytes / costs.link_rate : 0;
  const double cores = work / costs.cores;
  return link > cores ? link + kNotOverlapped * cores : cores + kNotOverlapped * link;
}

TEST(FastestFormatTest, ComparesAsThePlainOracleDoes) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 20'000; ++i) {
    const Costs costs = Of(std::pow(10, 7 + 4 * share(random)), 0.5 + 8 * share(random));
    const Sending what{.link = Link::kInter,
                       .width = static_cast<double>(1 << random() % 4),
                       .density = std::pow(10, -4 * share(random)),
                       .combines = random() % 2 == 0};
    const Outlook outlook = Compare(costs, Codec::kAuto, what);
    EXPECT_DOUBLE_EQ(outlook.dense.seconds, OracleSeconds(costs, Format::kDense, what));
    std::vector<double> all;
    for (const Format format : kAutoFormats) all.push_back(OracleSeconds(costs, format, what));
    std::sort(all.begin(), all.end());
    EXPECT_DOUBLE_EQ(outlook.sparse.seconds, all[0]);
    ASSERT_TRUE(outlook.other_sparse.has_value());
    EXPECT_DOUBLE_EQ(outlook.other_sparse->seconds, all[1]);
    EXPECT_NE(outlook.sparse.format, outlook.other_sparse->format);
    EXPECT_DOUBLE_EQ(OracleSeconds(costs, outlook.sparse.format, what), outlook.sparse.seconds);
  }
}

TEST(FastestFormatTest, AFixedCodecIsTakenAndWhatWouldBeFasterIsTold) {
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 100; ++i) {
    const Costs costs = Of(std::pow(10, 7 + 3 * share(random)));
    const Sending what = SendingAt(share(random) * share(random));
    const Outlook open = Compare(costs, Codec::kAuto, what);
    for (const Codec codec : {Codec::kPici, Codec::kCoo, Codec::kGap, Codec::kPiciColumn}) {
      const Outlook outlook = Compare(costs, codec, what);
      EXPECT_EQ(outlook.sparse.format, SparseFormat(codec, what.density));
      EXPECT_EQ(outlook.sparse.seconds, OracleSeconds(costs, outlook.sparse.format, what));
      ASSERT_TRUE(outlook.other_sparse.has_value());
      const bool is_first = outlook.sparse.format == open.sparse.format;
      EXPECT_EQ(outlook.other_sparse->format, (is_first ? *open.other_sparse : open.sparse).format);
    }
  }
}

TEST(FastestFormatTest, AFixedCodecWithinANodeIsComparedWithDenseOnly) {
  const Outlook outlook = Compare(Of(1e8), Codec::kPiciColumn, SendingAt(0.1, Link::kIntra));
  EXPECT_EQ(outlook.sparse.format, Format::kPiciColumn);
  EXPECT_FALSE(outlook.other_sparse.has_value());
  EXPECT_EQ(outlook.dense.format, Format::kDense);
}

TEST(FastestFormatTest, WithinANodeNothingIsOnTheWay) {
  const Outlook slow = Compare(Of(1e3), Codec::kAuto, SendingAt(0.5, Link::kIntra));
  const Outlook fast = Compare(Of(1e12), Codec::kAuto, SendingAt(0.5, Link::kIntra));
  EXPECT_EQ(slow.sparse.seconds, fast.sparse.seconds);
  EXPECT_EQ(slow.sparse.wire_seconds, 0);
}

// What the sender may take for a slice brings back exactly its elements, whatever they are.
TEST(FastestFormatTest, OnlyWhatRepresentsTheSlice) {
  for (int code = 0; code < kExactFormatCount; ++code) {
    EXPECT_TRUE(Represents(static_cast<Format>(code), kMaxFrameElements));
    EXPECT_FALSE(Represents(static_cast<Format>(code), kMaxFrameElements + 1));
  }
  // The formats with loss, and a code that this build does not know.
  for (int code = kExactFormatCount; code <= kFormatCount; ++code) {
    EXPECT_FALSE(Represents(static_cast<Format>(code), 16)) << code;
  }
  const float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), 0,    -1e-45F, 0,
                        std::numeric_limits<float>::infinity(),  3.5F, 0,       0};
  for (const double density : {0.0001, 0.01, 0.1, 0.5, 1.0}) {
    for (const double rate : {1e6, 1e8, 1e10}) {
      const Outlook outlook = Compare(Of(rate), Codec::kAuto, SendingAt(density));
      for (const Format format : {outlook.sparse.format, outlook.other_sparse->format}) {
        ASSERT_TRUE(Represents(format, std::size(kOdd)));
        std::vector<std::byte> frame(MaxFrameBytes(format, DType::kFloat32, std::size(kOdd)) +
                                     kEncodeSlack);
        Encode(format, DType::kFloat32, kOdd, std::size(kOdd), frame.data());
        float back[std::size(kOdd)];
        Decode(frame.data(), back);
        // Bit by bit: a NaN equals nothing.
        const auto* const bytes = reinterpret_cast<const std::byte*>(back);
        const auto* const given = reinterpret_cast<const std::byte*>(kOdd);
        EXPECT_EQ(std::memcmp(bytes, given, sizeof back), 0) << NameOf(format);
      }
    }
  }
}

TEST(WireFormatTest, OrDenseWhereThatIsSmaller) {
  const Costs costs = Of(1e8);
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
