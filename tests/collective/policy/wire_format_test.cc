#include "collective/policy/wire_format.h"

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
