#include "collective/policy/wire_format.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/layout.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kFrameElements = 1 << 20;

double Bytes(Format format, DType dtype, double density) {
  const auto nnz = static_cast<uint64_t>(density * kFrameElements);
  return static_cast<double>(LayoutOf(format, dtype, kFrameElements, nnz).total) / kFrameElements;
}

TEST(WireFormatTest, IsWhatFramesTake) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int format = 0; format < kExactFormatCount; ++format) {
      for (const double density : {0.0, 0.01, 0.3, 1.0}) {
        const auto type = static_cast<DType>(dtype);
        const double width = static_cast<double>(SizeOf(type));
        EXPECT_NEAR(BytesPerElement(static_cast<Format>(format), width, density),
                    Bytes(static_cast<Format>(format), type, density), 1e-4)
            << dtype << " " << format << " " << density;
      }
    }
  }
}

// No exact format of float32 takes fewer bits an element for uniform positions.
double LeastBits(double density) {
  const double positions = -density * std::log2(density) - (1 - density) * std::log2(1 - density);
  return positions + 32 * density;
}

// What gap was made for (docs/adr/0009-gap.md), in frames of 16 Mi elements.
TEST(WireFormatTest, GapIsNearTheLeastThatPositionsTake) {
  constexpr uint64_t kElements = uint64_t{16} << 20;
  struct Goal {
    double density, most;
  };
  for (const Goal& goal : {Goal{0.1, 1.12}, Goal{0.07, 1.12}, Goal{0.05, 1.12}, Goal{0.03, 1.12},
                           Goal{0.01, 1.10}, Goal{0.001, 1.10}, Goal{0.0001, 1.15}}) {
    const auto nnz = static_cast<uint64_t>(goal.density * kElements);
    const uint64_t bytes = LayoutOf(Format::kGap, DType::kFloat32, kElements, nnz).total;
    const double share = 8 * static_cast<double>(bytes) / kElements / LeastBits(goal.density);
    EXPECT_GE(share, 1) << goal.density;
    EXPECT_LE(share, goal.most) << goal.density;
  }
}

TEST(WireFormatTest, CooIsSmallerBelowItsDensityForEveryType) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    const auto type = static_cast<DType>(dtype);
    const double below = kCooBelow * 0.999;
    const double above = kCooBelow * 1.001;
    EXPECT_LT(Bytes(Format::kCoo, type, below), Bytes(Format::kPici, type, below));
    EXPECT_GT(Bytes(Format::kCoo, type, above), Bytes(Format::kPici, type, above));
  }
  EXPECT_NEAR(kCooBelow, 0.0315, 1e-4);
}

}  // namespace
}  // namespace spccl::policy
