// The dense kernels of every target against the plain oracle.
#include "kernels/host/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "kernels/float16.h"
#include "tests/kernels/dense_suite.h"
#include "tests/kernels/host/host_codec.h"

namespace spccl {
namespace {

INSTANTIATE_TEST_SUITE_P(All, DenseSuite, EveryDTypeAndOp(HostCodecs()), DenseSuiteName);

class RingStepsTest : public DenseSuite {};

// Widen, Accumulate, Finish: the steps of a ring make the same result as one pass.
TEST_P(RingStepsTest, StepsOfARingEqualOnePass) {
  const DType accumulator = AccumulatorOf(dtype_, op_);
  for (const uint64_t elements : kReduceSizes) {
    const auto a = Random(dtype_, elements, Pattern::kFull);
    const auto b = Random(dtype_, elements, Pattern::kHalf);
    const auto c = Random(dtype_, elements, Pattern::kSpecials);
    Buffer sum(elements * SizeOf(accumulator), rng_() % 64, kGuard);
    Buffer partial(elements * SizeOf(accumulator), rng_() % 64, kGuard);
    Buffer result(elements * SizeOf(dtype_), rng_() % 64, kGuard);
    Widen(dtype_, op_, a->data(), sum.data(), elements);
    Widen(dtype_, op_, b->data(), partial.data(), elements);
    Accumulate(accumulator, op_, partial.data(), sum.data(), elements);
    Widen(dtype_, op_, c->data(), partial.data(), elements);
    Accumulate(accumulator, op_, partial.data(), sum.data(), elements);
    Finish(dtype_, op_, sum.data(), result.data(), elements, 3);
    ASSERT_TRUE(sum.Intact() && partial.Intact() && result.Intact());
    const oracle::Bytes expected =
        oracle::Reduce(dtype_, op_, {a->data(), b->data(), c->data()}, elements);
    ExpectSame(dtype_, result.data(), expected, elements);
    if (accumulator == dtype_) {
      Finish(dtype_, op_, sum.data(), sum.data(), elements, 3);
      ExpectSame(dtype_, sum.data(), expected, elements);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RingStepsTest, EveryDTypeAndOp(HostCodecs()), DenseSuiteName);

class CopyTest : public testing::TestWithParam<std::string_view> {};

TEST_P(CopyTest, CopiesToEveryOutput) {
  ASSERT_TRUE(ForceTarget(GetParam()));
  std::mt19937_64 rng(TestSeed());
  for (const uint64_t bytes : {0, 1, 63, 64, 65, 4095, 16384, 16385, 32832, 100001}) {
    Buffer input(bytes, rng() % 64, kGuard);
    FillElements(DType::kUint8, Pattern::kFull, rng, bytes, input.data());
    const std::vector<uint8_t> before = input.bytes();
    for (const bool streaming : {false, true}) {
      std::vector<Buffer> others;
      std::vector<void*> outputs{input.data()};
      for (const bool aligned : {false, true, true, true, false}) {
        others.emplace_back(bytes, aligned ? 0 : rng() % 64, kGuard);
      }
      for (Buffer& other : others) outputs.push_back(other.data());
      std::swap(outputs[0], outputs[rng() % outputs.size()]);
      CopyToMany(input.data(), outputs, bytes, streaming);
      EXPECT_TRUE(input.Intact() && input.bytes() == before);
      for (const Buffer& other : others) EXPECT_TRUE(other.Intact() && other.bytes() == before);
    }
  }
  ForceTarget("");
}

INSTANTIATE_TEST_SUITE_P(AllTargets, CopyTest, testing::ValuesIn(TestedTargets()),
                         [](const auto& info) { return TestName(info.param); });

// The oracle's own narrowing and the kernels' agree on every half and on ties.
TEST(Float16Test, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = oracle::FromFloat16(half);
    const float brain = oracle::FromBfloat16(half);
    if (value == value) {
      ASSERT_EQ(std::bit_cast<uint32_t>(Float16ToFloat(half)), std::bit_cast<uint32_t>(value));
      ASSERT_EQ(FloatToFloat16(value), half);
    }
    if (brain == brain) {
      ASSERT_EQ(FloatToBfloat16(brain), half);
    }
  }
  std::mt19937_64 rng(TestSeed());
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (value != value) continue;
    ASSERT_EQ(FloatToFloat16(value), oracle::ToFloat16(value)) << value;
    ASSERT_EQ(FloatToBfloat16(value), oracle::ToBfloat16(value)) << value;
  }
  // Halfway between two: the even one.
  EXPECT_EQ(FloatToFloat16(1.0f + 0x1p-11f), 0x3C00);
  EXPECT_EQ(FloatToFloat16(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(FloatToBfloat16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(FloatToBfloat16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7C00);  // halfway past the largest: infinity
  EXPECT_EQ(FloatToFloat16(65519.0f), 0x7BFF);
}

}  // namespace
}  // namespace spccl
