// One property suite for every target, format and dtype against the plain oracle.
#include "kernels/host/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/kernels/host/elements.h"
#include "tests/support/frame_oracle.h"

namespace spccl {
namespace {

constexpr size_t kGuard = 256;

class CodecTest : public testing::TestWithParam<std::tuple<std::string_view, Format, DType>> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ForceTarget(std::get<0>(GetParam())));
    format_ = std::get<1>(GetParam());
    dtype_ = std::get<2>(GetParam());
    rng_.seed(TestSeed());
  }
  void TearDown() override { ForceTarget(""); }

  // Calls Check(input, frame) for every size and pattern, at alignments that vary.
  template <class Check>
  void ForEachInput(Check check) {
    const size_t size = SizeOf(dtype_);
    for (const uint64_t elements : EdgeSizes()) {
      for (const Pattern pattern : kPatterns) {
        SCOPED_TRACE(testing::Message() << "elements " << elements << " pattern "
                                        << static_cast<int>(pattern) << " seed " << TestSeed());
        Buffer input(elements * size, rng_() % 3 == 0 ? rng_() % 64 : 0);
        FillElements(dtype_, pattern, rng_, elements, input.data());
        check(input, elements, oracle::EncodeFrame(format_, dtype_, input.data(), elements));
        if (testing::Test::HasFailure()) return;
      }
    }
  }

  Format format_;
  DType dtype_;
  std::mt19937_64 rng_;
};

TEST_P(CodecTest, EncodesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& expected) {
    Buffer frame(MaxFrameBytes(format_, dtype_, elements) + kEncodeSlack, rng_() % 64, kGuard);
    const Encoded encoded = Encode(format_, dtype_, input.data(), elements, frame.data());
    ASSERT_TRUE(frame.Intact());
    ASSERT_EQ(encoded.frame_bytes, expected.size());
    EXPECT_EQ(encoded.frame_bytes, FrameBytes(format_, dtype_, elements, encoded.nnz));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), frame.data()));
    EXPECT_TRUE(Validate(frame.data(), encoded.frame_bytes, dtype_, elements).ok());
  });
}

TEST_P(CodecTest, DecodesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& bytes) {
    Buffer frame(bytes.size(), rng_() % 64);
    std::copy(bytes.begin(), bytes.end(), frame.data());
    const oracle::Bytes expected = oracle::DecodeFrame(bytes);
    for (const Stores stores : {Stores::kAuto, Stores::kCached, Stores::kStreaming}) {
      Buffer dense(elements * SizeOf(dtype_), stores == Stores::kCached ? rng_() % 64 : 16, kGuard);
      Decode(frame.data(), dense.data(), stores);
      ASSERT_TRUE(dense.Intact());
      EXPECT_TRUE(dense.bytes() == expected);
    }
  });
}

TEST_P(CodecTest, ReducesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& bytes) {
    Buffer frame(bytes.size(), rng_() % 64);
    std::copy(bytes.begin(), bytes.end(), frame.data());
    std::vector<DType> accumulators = {dtype_};
    if (SizeOf(dtype_) == 2) accumulators.push_back(DType::kFloat32);
    for (const DType accumulator : accumulators) {
      Buffer sum(elements * SizeOf(accumulator), rng_() % 64, kGuard);
      FillElements(accumulator, Pattern::kHalf, rng_, elements, sum.data());
      oracle::Bytes expected = sum.bytes();
      const oracle::Bytes before = expected;
      oracle::AddFrame(bytes, accumulator, expected);
      ReduceInto(frame.data(), sum.data(), accumulator);
      ASSERT_TRUE(sum.Intact());
      const uint64_t at =
          oracle::FirstDifference(accumulator, sum.data(), expected.data(), elements);
      EXPECT_EQ(at, elements) << "accumulator " << NameOf(accumulator);
      // What the frame does not hold stays bit for bit.
      const std::vector<bool> stored = oracle::StoredElements(bytes);
      const size_t size = SizeOf(accumulator);
      bool kept = true;
      for (uint64_t i = 0; i < elements; ++i) {
        kept =
            kept && (stored[i] || std::memcmp(&before[i * size], sum.data() + i * size, size) == 0);
      }
      EXPECT_TRUE(kept);
    }
  });
}

TEST_P(CodecTest, CountsAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes&) {
    uint64_t expected = 0;
    for (uint64_t i = 0; i < elements; ++i) {
      expected += oracle::IsNonzero(dtype_, input.data() + i * SizeOf(dtype_));
    }
    EXPECT_EQ(CountNonzeros(dtype_, input.data(), elements), expected);
  });
}

// Large enough for streaming stores to be chosen, and for many tiles.
TEST_P(CodecTest, LargeFramesSurviveARoundTrip) {
  const uint64_t elements = kStreamingBytes / SizeOf(dtype_) + 4096 + 77;
  for (const size_t offset : {size_t{0}, size_t{16}, size_t{3}}) {
    Buffer input(elements * SizeOf(dtype_), offset);
    FillElements(dtype_, Pattern::kTenth, rng_, elements, input.data());
    Buffer frame(MaxFrameBytes(format_, dtype_, elements) + kEncodeSlack, 0, kGuard);
    const Encoded encoded = Encode(format_, dtype_, input.data(), elements, frame.data());
    ASSERT_TRUE(Validate(frame.data(), encoded.frame_bytes, dtype_, elements).ok());
    Buffer dense(elements * SizeOf(dtype_), offset, kGuard);
    Decode(frame.data(), dense.data());
    ASSERT_TRUE(dense.Intact() && frame.Intact());
    // A negative zero comes back as zero from the sparse formats, all else bit for bit.
    oracle::Bytes expected = input.bytes();
    if (format_ != Format::kDense && IsFloat(dtype_)) {
      const size_t size = SizeOf(dtype_);
      for (uint64_t i = 0; i < elements; ++i) {
        if (!oracle::IsNonzero(dtype_, &expected[i * size])) {
          std::memset(&expected[i * size], 0, size);
        }
      }
    }
    EXPECT_TRUE(dense.bytes() == expected) << "seed " << TestSeed();
  }
}

std::vector<DType> AllDTypes() {
  std::vector<DType> dtypes;
  for (int code = 0; code < kDTypeCount; ++code) dtypes.push_back(static_cast<DType>(code));
  return dtypes;
}

INSTANTIATE_TEST_SUITE_P(All, CodecTest,
                         testing::Combine(testing::ValuesIn(TestedTargets()),
                                          testing::Values(Format::kDense, Format::kPici,
                                                          Format::kPiciColumn, Format::kCoo,
                                                          Format::kGap),
                                          testing::ValuesIn(AllDTypes())),
                         [](const auto& info) {
                           return TestName(std::string(std::get<0>(info.param)) + "_" +
                                           std::string(NameOf(std::get<1>(info.param))) + "_" +
                                           std::string(NameOf(std::get<2>(info.param))));
                         });

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
