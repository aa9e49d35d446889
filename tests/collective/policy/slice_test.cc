#include "collective/policy/slice.h"

#include "gtest/gtest.h"

namespace spccl::policy {
namespace {

constexpr uint64_t kLongChunk = 16 << 20;
constexpr uint64_t kKiB = 1 << 10;

uint64_t SliceOf(double density, uint32_t ranks, OpKind kind = OpKind::kAllReduce,
                 uint64_t chunk = kLongChunk, DType dtype = DType::kFloat32) {
  Tuning tuning;
  tuning.densities.fill(density);
  return SliceBytes(tuning, {.kind = kind, .dtype = dtype, .count = chunk}, ranks, chunk);
}

TEST(SliceBytesTest, FramesHaveAboutOneSizeWhateverTheDensity) {
  EXPECT_EQ(SliceOf(1, 2), 128 * kKiB);
  EXPECT_EQ(SliceOf(0.1, 2), 512 * kKiB);    // 19% in the sum
  EXPECT_EQ(SliceOf(0.1, 4), 256 * kKiB);    // 34%
  EXPECT_EQ(SliceOf(0.03, 2), 1024 * kKiB);  // 6%
  EXPECT_EQ(SliceOf(0.01, 2), 2048 * kKiB);  // and no larger
  EXPECT_EQ(SliceOf(0, 2), 2048 * kKiB);
}

TEST(SliceBytesTest, WhatMovesUnchangedKeepsItsDensity) {
  EXPECT_EQ(SliceOf(0.1, 64, OpKind::kAllGather), 512 * kKiB);
  EXPECT_EQ(SliceOf(0.1, 64, OpKind::kReduceScatter), 128 * kKiB);
}

TEST(SliceBytesTest, SmallChunksAreStillCut) {
  EXPECT_EQ(SliceOf(0.01, 2, OpKind::kAllReduce, (2 << 20) / sizeof(float)), 256 * kKiB);
  EXPECT_EQ(SliceOf(0.01, 2, OpKind::kAllReduce, 1), 128 * kKiB);
}

TEST(SliceBytesTest, WhatGoesDenseIsSlicedAsDense) {
  Tuning tuning;
  tuning.densities.fill(0.01);
  const OpDesc max{.kind = OpKind::kAllReduce, .redop = RedOp::kMax, .count = kLongChunk};
  EXPECT_EQ(SliceBytes(tuning, max, 2, kLongChunk), 128 * kKiB);
  tuning.codec = Codec::kDense;
  const OpDesc sum{.kind = OpKind::kAllReduce, .count = kLongChunk};
  EXPECT_EQ(SliceBytes(tuning, sum, 2, kLongChunk), 128 * kKiB);
}

TEST(SliceBytesTest, WhatIsFixedStays) {
  Tuning tuning;
  tuning.slice_bytes = 12345;
  EXPECT_EQ(SliceBytes(tuning, {.kind = OpKind::kAllReduce, .count = kLongChunk}, 2, kLongChunk),
            12345U);
}

TEST(DensityOfSumTest, IsThatOfIndependentPositions) {
  EXPECT_EQ(DensityOfSum(0.25, 1), 0.25);
  EXPECT_EQ(DensityOfSum(0.5, 3), 0.875);
  EXPECT_EQ(DensityOfSum(0, 100), 0);
  EXPECT_EQ(DensityOfSum(1, 7), 1);
}

}  // namespace
}  // namespace spccl::policy
