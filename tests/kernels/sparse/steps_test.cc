// Widen, Accumulate, Finish and CopyToMany on the fibre lane write what the host's do.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "kernels/host/dense.h"
#include "tests/kernels/sparse/fibre_codec.h"
#include "tests/support/frame_oracle.h"

namespace spccl {
namespace {

constexpr uint64_t kSizes[] = {0, 1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097};

class StepsTest : public testing::TestWithParam<std::tuple<DType, RedOp>> {
 protected:
  StepsTest() : launcher_(SharedMachine(TestSeed())), rng_(TestSeed()) {}

  // One in three buffers lies as its elements must and no better.
  std::unique_ptr<Buffer> Empty(DType dtype, uint64_t elements) {
    const size_t offset = rng_() % 3 == 0 ? rng_() % 16 * SizeOf(dtype) : 0;
    return std::make_unique<Buffer>(elements * SizeOf(dtype), offset, kGuard);
  }
  std::unique_ptr<Buffer> Random(DType dtype, uint64_t elements) {
    auto buffer = Empty(dtype, elements);
    FillElements(dtype, kPatterns[rng_() % std::size(kPatterns)], rng_, elements, buffer->data());
    return buffer;
  }
  void ExpectSame(DType dtype, const Buffer& found, const uint8_t* expected, uint64_t elements) {
    ASSERT_TRUE(launcher_.status().ok()) << launcher_.status();
    ASSERT_TRUE(found.Intact());
    EXPECT_EQ(oracle::FirstDifference(dtype, found.data(), expected, elements), elements);
  }
  // Calls check(elements) for the sizes; large ones are rarer where lanes are slow.
  template <class Check>
  void ForEachSize(Check check) {
    for (const uint64_t elements : kSizes) {
      if (elements > 100 && rng_() % kFibreThinning != 0) continue;
      SCOPED_TRACE(testing::Message() << "elements " << elements << " seed " << TestSeed());
      check(elements);
      if (HasFailure()) return;
    }
  }

  const DType dtype_ = std::get<0>(GetParam());
  const RedOp op_ = std::get<1>(GetParam());
  const DType accumulator_ = AccumulatorOf(dtype_, op_);
  simt::FibreLauncher launcher_;
  std::mt19937_64 rng_;
};

TEST_P(StepsTest, WidensAsTheHost) {
  ForEachSize([this](uint64_t elements) {
    const auto input = Random(dtype_, elements);
    const auto wide = Empty(accumulator_, elements);
    oracle::Bytes expected(elements * SizeOf(accumulator_));
    Widen(dtype_, op_, input->data(), expected.data(), elements);
    sparse::Widen(launcher_, dtype_, op_, input->data(), wide->data(), elements);
    ExpectSame(accumulator_, *wide, expected.data(), elements);
    if (accumulator_ == dtype_) {  // in place: nothing to do
      sparse::Widen(launcher_, dtype_, op_, wide->data(), wide->data(), elements);
      ExpectSame(accumulator_, *wide, expected.data(), elements);
    }
  });
}

TEST_P(StepsTest, AccumulatesAsTheHost) {
  ForEachSize([this](uint64_t elements) {
    const auto partial = Random(accumulator_, elements);
    const auto sum = Random(accumulator_, elements);
    oracle::Bytes expected = sum->bytes();
    Accumulate(accumulator_, op_, partial->data(), expected.data(), elements);
    sparse::Accumulate(launcher_, accumulator_, op_, partial->data(), sum->data(), elements);
    ExpectSame(accumulator_, *sum, expected.data(), elements);
    Accumulate(accumulator_, op_, expected.data(), expected.data(), elements);
    sparse::Accumulate(launcher_, accumulator_, op_, sum->data(), sum->data(), elements);
    ExpectSame(accumulator_, *sum, expected.data(), elements);
  });
}

TEST_P(StepsTest, FinishesAsTheHost) {
  ForEachSize([this](uint64_t elements) {
    const auto sum = Random(accumulator_, elements);
    const uint32_t ranks = 1 + static_cast<uint32_t>(rng_() % 9);
    oracle::Bytes expected(elements * SizeOf(dtype_));
    Finish(dtype_, op_, sum->data(), expected.data(), elements, ranks);
    std::vector<std::unique_ptr<Buffer>> outputs;
    std::vector<void*> to;
    for (size_t count = 1 + rng_() % 3; outputs.size() < count;) {
      outputs.push_back(Empty(dtype_, elements));
      to.push_back(outputs.back()->data());
    }
    if (accumulator_ == dtype_) to.push_back(sum->data());  // in place
    sparse::Finish(launcher_, dtype_, op_, sum->data(), to, elements, ranks);
    for (const auto& output : outputs) ExpectSame(dtype_, *output, expected.data(), elements);
    if (accumulator_ == dtype_) ExpectSame(dtype_, *sum, expected.data(), elements);
  });
}

TEST_P(StepsTest, MakeTheResultOfOnePass) {
  ForEachSize([this](uint64_t elements) {
    const auto a = Random(dtype_, elements), b = Random(dtype_, elements);
    const auto sum = Empty(accumulator_, elements), partial = Empty(accumulator_, elements);
    const auto result = Empty(dtype_, elements);
    sparse::Widen(launcher_, dtype_, op_, a->data(), sum->data(), elements);
    sparse::Widen(launcher_, dtype_, op_, b->data(), partial->data(), elements);
    sparse::Accumulate(launcher_, accumulator_, op_, partial->data(), sum->data(), elements);
    void* const to[] = {result->data()};
    sparse::Finish(launcher_, dtype_, op_, sum->data(), to, elements, 2);
    const oracle::Bytes expected = oracle::Reduce(dtype_, op_, {a->data(), b->data()}, elements);
    ExpectSame(dtype_, *result, expected.data(), elements);
  });
}

INSTANTIATE_TEST_SUITE_P(Fibre, StepsTest,
                         testing::Combine(testing::ValuesIn(AllDTypes()),
                                          testing::Values(RedOp::kSum, RedOp::kProd, RedOp::kMax,
                                                          RedOp::kMin, RedOp::kAvg)),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) + "_" +
                                  std::string(NameOf(std::get<1>(info.param)));
                         });

class CopyToManyTest : public testing::TestWithParam<DType> {};

TEST_P(CopyToManyTest, CopiesToAllButTheInput) {
  std::mt19937_64 rng(TestSeed());
  simt::FibreLauncher launcher(SharedMachine(TestSeed()));
  for (const uint64_t elements : kSizes) {
    SCOPED_TRACE(testing::Message() << "elements " << elements << " seed " << TestSeed());
    const size_t size = SizeOf(GetParam());
    Buffer input(elements * size, rng() % 3 * size, kGuard);
    FillElements(GetParam(), Pattern::kFull, rng, elements, input.data());
    const std::vector<uint8_t> before = input.bytes();
    Buffer first(elements * size, rng() % 3 * size, kGuard), second(elements * size, 0, kGuard);
    void* const outputs[] = {first.data(), input.data(), second.data()};
    sparse::CopyToMany(launcher, GetParam(), input.data(), outputs, elements);
    ASSERT_TRUE(launcher.status().ok()) << launcher.status();
    EXPECT_TRUE(first.Intact() && second.Intact() && input.Intact());
    EXPECT_TRUE(first.bytes() == before && second.bytes() == before && input.bytes() == before);
  }
}

INSTANTIATE_TEST_SUITE_P(Fibre, CopyToManyTest, testing::ValuesIn(AllDTypes()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace spccl
