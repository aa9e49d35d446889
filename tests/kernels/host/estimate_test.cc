#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "kernels/host/codec.h"
#include "tests/support/seed.h"

namespace spccl {
namespace {

constexpr DType kTypes[] = {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64};

// One in every type, as far as "is not zero" goes.
std::vector<std::byte> Filled(DType dtype, const std::vector<bool>& nonzero) {
  std::vector<std::byte> bytes(nonzero.size() * SizeOf(dtype));
  for (size_t i = 0; i < nonzero.size(); ++i) {
    if (nonzero[i]) bytes[i * SizeOf(dtype)] = std::byte{1};
  }
  return bytes;
}

TEST(EstimateTest, AllOrNoneIsExact) {
  for (const DType dtype : kTypes) {
    for (const uint64_t elements : {0, 1, 255, 4352, 17407, 17408, 17409, 100'000, 1 << 18}) {
      for (const bool all : {false, true}) {
        const auto bytes = Filled(dtype, std::vector<bool>(elements, all));
        EXPECT_EQ(EstimateNonzeros(dtype, bytes.data(), elements), all ? elements : 0)
            << NameOf(dtype) << ", " << elements;
      }
    }
  }
}

TEST(EstimateTest, SmallArraysAreCounted) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 50; ++i) {
    std::vector<bool> nonzero(random() % 17'000);
    uint64_t count = 0;
    for (size_t at = 0; at < nonzero.size(); ++at) count += nonzero[at] = random() % 3 == 0;
    const auto bytes = Filled(DType::kFloat32, nonzero);
    EXPECT_EQ(EstimateNonzeros(DType::kFloat32, bytes.data(), nonzero.size()), count);
  }
}

// Within five standard deviations of what a sample of that size says of uniform positions.
TEST(EstimateTest, UniformPositionsAreEstimatedClosely) {
  std::mt19937_64 random(TestSeed());
  for (const double density : {0.01, 0.1, 0.5, 0.9, 0.99}) {
    for (const uint64_t elements : {20'000, 123'457, 1 << 20}) {
      std::bernoulli_distribution is_nonzero(density);
      std::vector<bool> nonzero(elements);
      for (size_t at = 0; at < elements; ++at) nonzero[at] = is_nonzero(random);
      const auto bytes = Filled(DType::kFloat32, nonzero);
      const auto estimate =
          static_cast<double>(EstimateNonzeros(DType::kFloat32, bytes.data(), elements));
      const double sampled = static_cast<double>(elements) / 18;
      const double deviation = std::sqrt(density * (1 - density) / sampled);
      EXPECT_NEAR(estimate / static_cast<double>(elements), density, 5 * deviation)
          << elements << " elements";
    }
  }
}

// Columns of a matrix whose rows are a power of two long: what is sampled is not always the same
// columns.
TEST(EstimateTest, PeriodicZerosAreNotMissed) {
  for (const uint64_t row : {256, 1024, 4096, 16384}) {
    std::vector<bool> nonzero(1 << 20);
    for (size_t at = 0; at < nonzero.size(); ++at) nonzero[at] = at % row < row / 4;
    const auto bytes = Filled(DType::kFloat32, nonzero);
    const uint64_t estimate = EstimateNonzeros(DType::kFloat32, bytes.data(), nonzero.size());
    EXPECT_NEAR(static_cast<double>(estimate) / static_cast<double>(nonzero.size()), 0.25, 0.1)
        << "rows of " << row;
  }
}

}  // namespace
}  // namespace spccl
