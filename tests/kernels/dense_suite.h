// One suite for reductions of many inputs, every dtype and operation, against the plain oracle.
// Include it in one file and instantiate DenseSuite with the codecs to test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "tests/kernels/tested_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {

class DenseSuite : public testing::TestWithParam<std::tuple<CodecUnderTest, DType, RedOp>> {
 protected:
  void SetUp() override {
    codec_ = std::get<0>(GetParam()).make();
    dtype_ = std::get<1>(GetParam());
    op_ = std::get<2>(GetParam());
    rng_.seed(TestSeed());
  }

  std::unique_ptr<Buffer> Random(DType dtype, uint64_t elements, Pattern pattern) {
    auto buffer = std::make_unique<Buffer>(elements * SizeOf(dtype),
                                           codec_->ElementOffset(dtype, rng_), kGuard);
    FillElements(dtype, pattern, rng_, elements, buffer->data());
    return buffer;
  }

  void ExpectSame(DType dtype, const uint8_t* found, const oracle::Bytes& expected,
                  uint64_t elements) {
    EXPECT_EQ(oracle::FirstDifference(dtype, found, expected.data(), elements), elements)
        << "elements " << elements << " seed " << TestSeed();
  }

  std::unique_ptr<TestedCodec> codec_;
  DType dtype_;
  RedOp op_;
  std::mt19937_64 rng_;
};

inline const std::vector<uint64_t> kReduceSizes = {0,  1,  15,  16,  17,   63,
                                                   64, 65, 255, 257, 1023, 4099};

TEST_P(DenseSuite, ReducesAnyInputsIntoAnyOutputs) {
  for (const uint64_t elements : kReduceSizes) {
    for (const size_t ranks : {1, 2, 3, 4, 5, 9}) {
      if (codec_->Skip(rng_)) continue;
      std::vector<std::unique_ptr<Buffer>> inputs, outputs;
      std::vector<const uint8_t*> sources;
      std::vector<const void*> from;
      std::vector<void*> to;
      for (size_t r = 0; r < ranks; ++r) {
        inputs.push_back(
            Random(dtype_, elements, r % 3 == 2 ? Pattern::kSpecials : Pattern::kFull));
        sources.push_back(inputs.back()->data());
        from.push_back(inputs.back()->data());
        outputs.push_back(Random(dtype_, elements, Pattern::kZeros));
        to.push_back(outputs.back()->data());
      }
      const oracle::Bytes expected = oracle::Reduce(dtype_, op_, sources, elements);
      codec_->Reduce(dtype_, op_, from, to, elements, rng_() % 2 == 0);
      for (const auto& output : outputs) {
        ASSERT_TRUE(output->Intact());
        ExpectSame(dtype_, output->data(), expected, elements);
      }
      // In place: the last input is an output, too.
      void* const in_place[] = {outputs[0]->data(), inputs.back()->data()};
      codec_->Reduce(dtype_, op_, from, in_place, elements, rng_() % 2 == 0);
      ASSERT_TRUE(inputs.back()->Intact());
      ExpectSame(dtype_, outputs[0]->data(), expected, elements);
      ExpectSame(dtype_, inputs.back()->data(), expected, elements);
    }
  }
}

inline auto EveryDTypeAndOp(std::vector<CodecUnderTest> codecs) {
  return testing::Combine(
      testing::ValuesIn(codecs), testing::ValuesIn(AllDTypes()),
      testing::Values(RedOp::kSum, RedOp::kProd, RedOp::kMax, RedOp::kMin, RedOp::kAvg));
}

inline std::string DenseSuiteName(
    const testing::TestParamInfo<std::tuple<CodecUnderTest, DType, RedOp>>& info) {
  return TestName(std::get<0>(info.param).name + "_" +
                  std::string(NameOf(std::get<1>(info.param))) + "_" +
                  std::string(NameOf(std::get<2>(info.param))));
}

}  // namespace spccl
