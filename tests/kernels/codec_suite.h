// One property suite for every codec, format and dtype against the plain oracle. Include it in one
// file and instantiate CodecSuite with the codecs to test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/kernels/tested_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {

class CodecSuite : public testing::TestWithParam<std::tuple<CodecUnderTest, Format, DType>> {
 protected:
  void SetUp() override {
    codec_ = std::get<0>(GetParam()).make();
    format_ = std::get<1>(GetParam());
    dtype_ = std::get<2>(GetParam());
    rng_.seed(TestSeed());
  }

  // Calls Check(input, frame) for every size and pattern, at alignments that vary.
  template <class Check>
  void ForEachInput(Check check) {
    const size_t size = SizeOf(dtype_);
    for (const uint64_t elements : EdgeSizes()) {
      for (const Pattern pattern : kPatterns) {
        if (codec_->Skip(rng_)) continue;
        SCOPED_TRACE(testing::Message() << "elements " << elements << " pattern "
                                        << static_cast<int>(pattern) << " seed " << TestSeed());
        Buffer input(elements * size, rng_() % 3 == 0 ? codec_->ElementOffset(dtype_, rng_) : 0);
        FillElements(dtype_, pattern, rng_, elements, input.data());
        check(input, elements, oracle::EncodeFrame(format_, dtype_, input.data(), elements));
        if (testing::Test::HasFailure()) return;
      }
    }
  }

  std::unique_ptr<TestedCodec> codec_;
  Format format_;
  DType dtype_;
  std::mt19937_64 rng_;
};

TEST_P(CodecSuite, EncodesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& expected) {
    Buffer frame(MaxFrameBytes(format_, dtype_, elements) + kEncodeSlack, codec_->FrameOffset(rng_),
                 kGuard);
    const Encoded encoded = codec_->Encode(format_, dtype_, input.data(), elements, frame.data());
    ASSERT_TRUE(frame.Intact());
    ASSERT_EQ(encoded.frame_bytes, expected.size());
    EXPECT_EQ(encoded.frame_bytes, FrameBytes(format_, dtype_, elements, encoded.nnz));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), frame.data()));
    EXPECT_TRUE(Validate(frame.data(), encoded.frame_bytes, dtype_, elements).ok());
  });
}

TEST_P(CodecSuite, DecodesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& bytes) {
    Buffer frame(bytes.size(), codec_->FrameOffset(rng_));
    std::copy(bytes.begin(), bytes.end(), frame.data());
    const oracle::Bytes expected = oracle::DecodeFrame(bytes);
    for (const Stores stores : {Stores::kAuto, Stores::kCached, Stores::kStreaming}) {
      const size_t offset = stores == Stores::kCached ? codec_->ElementOffset(dtype_, rng_) : 16;
      Buffer dense(elements * SizeOf(dtype_), offset, kGuard);
      codec_->Decode(frame.data(), dense.data(), stores);
      ASSERT_TRUE(dense.Intact());
      EXPECT_TRUE(dense.bytes() == expected);
    }
  });
}

TEST_P(CodecSuite, ReducesAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes& bytes) {
    Buffer frame(bytes.size(), codec_->FrameOffset(rng_));
    std::copy(bytes.begin(), bytes.end(), frame.data());
    std::vector<DType> accumulators = {dtype_};
    if (SizeOf(dtype_) == 2) accumulators.push_back(DType::kFloat32);
    for (const DType accumulator : accumulators) {
      Buffer sum(elements * SizeOf(accumulator), codec_->ElementOffset(accumulator, rng_), kGuard);
      FillElements(accumulator, Pattern::kHalf, rng_, elements, sum.data());
      oracle::Bytes expected = sum.bytes();
      const oracle::Bytes before = expected;
      oracle::AddFrame(bytes, accumulator, expected);
      codec_->ReduceInto(frame.data(), sum.data(), accumulator);
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

TEST_P(CodecSuite, CountsAsTheOracle) {
  ForEachInput([this](const Buffer& input, uint64_t elements, const oracle::Bytes&) {
    uint64_t expected = 0;
    for (uint64_t i = 0; i < elements; ++i) {
      expected += oracle::IsNonzero(dtype_, input.data() + i * SizeOf(dtype_));
    }
    EXPECT_EQ(codec_->CountNonzeros(dtype_, input.data(), elements), expected);
  });
}

// Large enough for streaming stores to be chosen, and for many tiles.
TEST_P(CodecSuite, LargeFramesSurviveARoundTrip) {
  const uint64_t elements = codec_->LargeBytes() / SizeOf(dtype_) + 4096 + 77;
  for (size_t offset : {size_t{0}, size_t{16}, size_t{3}}) {
    offset *= offset == 3 ? codec_->ElementAlignment(dtype_) : 1;
    Buffer input(elements * SizeOf(dtype_), offset);
    FillElements(dtype_, Pattern::kTenth, rng_, elements, input.data());
    Buffer frame(MaxFrameBytes(format_, dtype_, elements) + kEncodeSlack, 0, kGuard);
    const Encoded encoded = codec_->Encode(format_, dtype_, input.data(), elements, frame.data());
    ASSERT_TRUE(Validate(frame.data(), encoded.frame_bytes, dtype_, elements).ok());
    Buffer dense(elements * SizeOf(dtype_), offset, kGuard);
    codec_->Decode(frame.data(), dense.data(), Stores::kAuto);
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

inline auto EveryFormatAndDType(std::vector<CodecUnderTest> codecs) {
  return testing::Combine(testing::ValuesIn(codecs),
                          testing::Values(Format::kDense, Format::kPici, Format::kPiciColumn,
                                          Format::kCoo, Format::kGap),
                          testing::ValuesIn(AllDTypes()));
}

inline std::string CodecSuiteName(
    const testing::TestParamInfo<std::tuple<CodecUnderTest, Format, DType>>& info) {
  return TestName(std::get<0>(info.param).name + "_" +
                  std::string(NameOf(std::get<1>(info.param))) + "_" +
                  std::string(NameOf(std::get<2>(info.param))));
}

}  // namespace spccl
