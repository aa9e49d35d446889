// The property suite on every target of the host, and what only the host has.
#include "kernels/host/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/codec_suite.h"
#include "tests/kernels/host/host_codec.h"

namespace spccl {
namespace {

INSTANTIATE_TEST_SUITE_P(All, CodecSuite, EveryFormatAndDType(HostCodecs()), CodecSuiteName);

TEST(WrapDenseTest, ValuesThatLieThereMakeTheFrameThatEncodeMakes) {
  std::vector<float> values(1001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const uint64_t bytes = MaxFrameBytes(Format::kDense, DType::kFloat32, values.size());
  std::vector<std::byte> expected(bytes + kEncodeSlack), frame(bytes);
  Encode(Format::kDense, DType::kFloat32, values.data(), values.size(), expected.data());
  std::memcpy(frame.data() + sizeof(FrameHeader), values.data(), values.size() * sizeof(float));
  EXPECT_EQ(WrapDense(DType::kFloat32, values.size(), frame.data()), bytes);
  EXPECT_EQ(std::memcmp(frame.data(), expected.data(), bytes), 0);
}

TEST(TargetTest, OnlyAvailableOnesCanBeForced) {
  EXPECT_THAT(TestedTargets(), testing::Contains("plain"));
  for (const std::string_view target : AvailableTargets()) {
    EXPECT_TRUE(ForceTarget(target));
    EXPECT_EQ(CurrentTarget(), target);
  }
  EXPECT_FALSE(ForceTarget("abacus"));
  EXPECT_TRUE(ForceTarget(""));
  EXPECT_EQ(CurrentTarget(), AvailableTargets()[0]);
}

}  // namespace
}  // namespace spccl
