#include "bench/model/kernel_rates.h"

#include "gtest/gtest.h"
#include "kernels/layout.h"

namespace spccl::bench::model {
namespace {

TEST(WireShareTest, IsWhatFramesTake) {
  constexpr uint64_t kElements = 1 << 22;
  for (const Format format : {Format::kDense, Format::kPici, Format::kCoo, Format::kGap}) {
    for (const double density : {0.01, 0.1, 0.5, 1.0}) {
      const auto nnz = static_cast<uint64_t>(density * kElements);
      const auto frame =
          static_cast<double>(LayoutOf(format, DType::kFloat32, kElements, nnz).total);
      EXPECT_NEAR(WireShare(format, 4, density), frame / (4.0 * kElements), 1e-4)
          << NameOf(format) << " " << density;
    }
  }
  // The paper's overhead, section III-B.
  EXPECT_NEAR(WireShare(Format::kPici, 4, 0), 0.0315, 1e-4);
}

// A kernel of one GiB at 3 TB/s, in microseconds.
double Micros(Kernel kernel, double density, double density_out = 0) {
  KernelRates rates;
  rates.memory_rate = 3e12;
  return rates.SecondsPerByte(kernel, Format::kPici, 4, density, density_out) * (1 << 30) * 1e6;
}

TEST(KernelRatesTest, FloorsByHand) {
  // One read of the elements and one write of the frame: 1 + 0.0415 bytes a byte.
  EXPECT_NEAR(Micros(Kernel::kEncode, 0.01), 373, 0.5);
  EXPECT_NEAR(Micros(Kernel::kEncode, 0.05), 387, 0.5);
  EXPECT_NEAR(Micros(Kernel::kDecode, 0.5), 548, 0.5);
  // Of sectors of eight elements 1 - 0.99^8 have a nonzero; they are read and written.
  EXPECT_NEAR(Micros(Kernel::kCombine, 0.01), 70, 0.5);
  EXPECT_NEAR(Micros(Kernel::kCombine, 0.05), 270, 0.5);
  EXPECT_NEAR(Micros(Kernel::kCombine, 0.5), 903, 1);
  // The frame, the elements, the sum's frame.
  EXPECT_NEAR(Micros(Kernel::kFused, 0.01, 0.0199), 391, 0.5);
}

TEST(KernelRatesTest, SharesSlowAKernelDown) {
  KernelRates rates;
  const double full = rates.SecondsPerByte(Kernel::kDecode, Format::kCoo, 4, 0.1);
  rates.shares[static_cast<size_t>(Kernel::kDecode)] = 0.25;
  EXPECT_DOUBLE_EQ(rates.SecondsPerByte(Kernel::kDecode, Format::kCoo, 4, 0.1), 4 * full);
  EXPECT_DOUBLE_EQ(rates.DenseSecondsPerByte(2), 3e-12);
}

TEST(KernelRatesTest, WhatWasMeasuredTakesTheFloorsPlace) {
  KernelRates rates;
  rates.measured[{Kernel::kEncode, Format::kPici}] = {{0.01, 1e-12}, {0.11, 2e-12}};
  const auto at = [&](double density) {
    return rates.SecondsPerByte(Kernel::kEncode, Format::kPici, 4, density);
  };
  EXPECT_DOUBLE_EQ(at(0.001), 1e-12);
  EXPECT_DOUBLE_EQ(at(0.06), 1.5e-12);
  EXPECT_DOUBLE_EQ(at(0.5), 2e-12);
  // Not that of another kernel or format.
  EXPECT_NE(rates.SecondsPerByte(Kernel::kEncode, Format::kCoo, 4, 0.001), 1e-12);
}

}  // namespace
}  // namespace spccl::bench::model
