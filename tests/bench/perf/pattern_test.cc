#include "bench/perf/pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>
#include <vector>

namespace spccl::bench {
namespace {

constexpr uint64_t kSeed = 7;

// The inputs of all ranks, as T.
template <typename T>
std::vector<std::vector<T>> Inputs(const Problem& problem, double sparsity) {
  const Pattern pattern(problem, kSeed, sparsity);
  std::vector<std::vector<T>> inputs;
  for (uint32_t rank = 0; rank < problem.ranks; ++rank) {
    inputs.emplace_back(SendElements(problem.op, problem.ranks));
    pattern.Fill(rank, inputs.back().data());
  }
  return inputs;
}

// A plain reduction in T itself: with data that is exact, no wider type is needed.
template <typename T>
T Reduce(RedOp redop, const std::vector<std::vector<T>>& inputs, uint64_t index) {
  T result = inputs[0][index];
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const T value = inputs[rank][index];
    if (redop == RedOp::kSum || redop == RedOp::kAvg) result = static_cast<T>(result + value);
    if (redop == RedOp::kProd) result = static_cast<T>(result * value);
    if (redop == RedOp::kMax) result = std::max(result, value);
    if (redop == RedOp::kMin) result = std::min(result, value);
  }
  return redop == RedOp::kAvg ? static_cast<T>(result / static_cast<T>(inputs.size())) : result;
}

template <typename T>
void CheckReduction(DType dtype) {
  for (int code = 0; code < kRedOpCount; ++code) {
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      const auto redop = static_cast<RedOp>(code);
      const Problem problem =
          MakeProblem(Collective::kAllReduce, dtype, redop, ranks, 1000 * sizeof(T)).value();
      const auto inputs = Inputs<T>(problem, 0.4);
      std::vector<T> result(problem.op.count);
      for (uint64_t i = 0; i < result.size(); ++i) result[i] = Reduce(redop, inputs, i);
      const Pattern pattern(problem, kSeed, 0.4);
      EXPECT_EQ(pattern.CountWrong(0, result.data()), 0u)
          << NameOf(dtype) << " " << NameOf(redop) << " " << ranks;
      result[17] = static_cast<T>(result[17] + 1);
      result[999] = static_cast<T>(result[999] + 1);
      EXPECT_EQ(pattern.CountWrong(0, result.data()), 2u);
    }
  }
}

TEST(Pattern, AgreesWithAPlainReduction) {
  CheckReduction<int8_t>(DType::kInt8);
  CheckReduction<uint8_t>(DType::kUint8);
  CheckReduction<int32_t>(DType::kInt32);
  CheckReduction<uint32_t>(DType::kUint32);
  CheckReduction<int64_t>(DType::kInt64);
  CheckReduction<uint64_t>(DType::kUint64);
  CheckReduction<float>(DType::kFloat32);
  CheckReduction<double>(DType::kFloat64);
}

// bfloat16 is the upper half of a float32.
TEST(Pattern, ReadsAndWritesBfloat16) {
  const Problem narrow =
      MakeProblem(Collective::kAllReduce, DType::kBfloat16, RedOp::kSum, 4, 2000).value();
  const auto inputs = Inputs<uint16_t>(narrow, 0.3);
  std::vector<uint16_t> result(narrow.op.count);
  for (uint64_t i = 0; i < result.size(); ++i) {
    float sum = 0;
    for (const auto& input : inputs) {
      const uint32_t wide = uint32_t{input[i]} << 16;
      float value;
      std::memcpy(&value, &wide, sizeof(value));
      sum += value;
    }
    uint32_t bits;
    std::memcpy(&bits, &sum, sizeof(bits));
    result[i] = static_cast<uint16_t>(bits >> 16);  // exact: the sum has at most 8 bits
  }
  const Pattern pattern(narrow, kSeed, 0.3);
  EXPECT_EQ(pattern.CountWrong(2, result.data()), 0u);
  result[5] ^= 0x0100;
  EXPECT_EQ(pattern.CountWrong(2, result.data()), 1u);
}

TEST(Pattern, KnowsFloat16) {
  const Problem problem =
      MakeProblem(Collective::kBroadcast, DType::kFloat16, RedOp::kSum, 2, 2000).value();
  const auto inputs = Inputs<uint16_t>(problem, 0.3);
  for (const uint16_t bits : inputs[0]) {
    const uint16_t magnitude = bits & 0x7fff;
    EXPECT_TRUE(magnitude == 0 || magnitude == 0x3c00 || magnitude == 0x4000 || magnitude == 0x4200)
        << bits;
  }
  const Pattern pattern(problem, kSeed, 0.3);
  EXPECT_EQ(pattern.CountWrong(1, inputs[0].data()), 0u);
  EXPECT_GT(pattern.CountWrong(1, inputs[1].data()), 500u);
  std::vector<uint16_t> nans(problem.op.count, 0x7e00);
  EXPECT_EQ(pattern.CountWrong(1, nans.data()), problem.op.count);
}

TEST(Pattern, KnowsWhoseShareIsWhose) {
  const Problem gather =
      MakeProblem(Collective::kAllGather, DType::kInt32, RedOp::kSum, 3, 1200).value();
  std::vector<int32_t> all;
  for (const auto& input : Inputs<int32_t>(gather, 0)) {
    all.insert(all.end(), input.begin(), input.end());
  }
  EXPECT_EQ(Pattern(gather, kSeed, 0).CountWrong(1, all.data()), 0u);
  std::swap(all[0], all[100]);
  EXPECT_LE(Pattern(gather, kSeed, 0).CountWrong(1, all.data()), 2u);

  const Problem reduce_scatter =
      MakeProblem(Collective::kReduceScatter, DType::kInt32, RedOp::kSum, 3, 1200).value();
  const auto inputs = Inputs<int32_t>(reduce_scatter, 0);
  std::vector<int32_t> share(100);
  for (int i = 0; i < 100; ++i) share[i] = Reduce(RedOp::kSum, inputs, 200 + i);
  EXPECT_EQ(Pattern(reduce_scatter, kSeed, 0).CountWrong(2, share.data()), 0u);
  EXPECT_GT(Pattern(reduce_scatter, kSeed, 0).CountWrong(1, share.data()), 0u);

  const Problem scatter =
      MakeProblem(Collective::kScatter, DType::kInt32, RedOp::kSum, 3, 1200).value();
  const std::vector<int32_t> whole = Inputs<int32_t>(scatter, 0)[0];  // the root's
  ASSERT_EQ(whole.size(), 300u);
  EXPECT_EQ(Pattern(scatter, kSeed, 0).CountWrong(2, whole.data() + 200), 0u);
  EXPECT_GT(Pattern(scatter, kSeed, 0).CountWrong(1, whole.data() + 200), 0u);
}

TEST(Pattern, ClusteredNonzerosLieInStretches) {
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 2, 4'000'000).value();
  for (const double sparsity : {0.0, 0.3, 0.9, 0.99}) {
    const Pattern pattern(problem, kSeed, sparsity, /*clustered=*/true);
    std::vector<float> input(problem.op.count);
    pattern.Fill(1, input.data());
    double nonzero = 0, full = 0;  // of elements, of stretches with any
    for (uint64_t first = 0; first < input.size(); first += Pattern::kStretch) {
      const auto end = input.begin() + std::min(first + Pattern::kStretch, input.size());
      const auto count = end - (input.begin() + first) - std::count(input.begin() + first, end, 0);
      nonzero += count;
      full += count > 0;
    }
    const double density = 1 - sparsity, inside = std::max(0.5, density);
    EXPECT_NEAR(nonzero / problem.op.count, density, 0.02) << sparsity;
    EXPECT_NEAR(full * Pattern::kStretch / problem.op.count, density / inside, 0.04) << sparsity;
  }
}

TEST(Pattern, SparsityIsWhatWasAskedForAndIndependentAcrossRanks) {
  const Problem problem =
      MakeProblem(Collective::kAllReduce, DType::kFloat32, RedOp::kSum, 2, 4'000'000).value();
  for (const double sparsity : {0.0, 0.5, 0.9, 0.99, 1.0}) {
    const auto inputs = Inputs<float>(problem, sparsity);
    uint64_t nonzero = 0, both = 0;
    for (uint64_t i = 0; i < problem.op.count; ++i) {
      nonzero += inputs[0][i] != 0;
      both += inputs[0][i] != 0 && inputs[1][i] != 0;
    }
    const double density = 1 - sparsity, count = static_cast<double>(problem.op.count);
    EXPECT_NEAR(nonzero / count, density, 0.003) << sparsity;
    EXPECT_NEAR(both / count, density * density, 0.003) << sparsity;
  }
}

}  // namespace
}  // namespace spccl::bench
