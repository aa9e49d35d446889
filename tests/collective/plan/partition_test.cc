#include "collective/plan/partition.h"

#include "gtest/gtest.h"

namespace spccl::plan {
namespace {

TEST(PartitionTest, CoversEveryCountOnceAndEvenly) {
  for (const uint32_t chunks : {1U, 2U, 3U, 7U, 64U}) {
    for (const uint64_t count : {0U, 1U, 2U, 15U, 16U, 17U, 33U, 63U, 100U, 1023U, 1024U, 1025U}) {
      uint64_t next = 0;
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const Range range = ChunkOf(count, chunks, chunk);
        ASSERT_EQ(range.first, next) << count << " in " << chunks;
        const uint64_t largest = ChunkOf(count, chunks, 0).elements;
        ASSERT_LE(range.elements, largest);
        ASSERT_GE(range.elements + 2 * kChunkGranule, largest + 1);
        next += range.elements;
      }
      ASSERT_EQ(next, count) << count << " in " << chunks;
    }
  }
}

TEST(PartitionTest, ByHand) {
  // 100 elements are 7 granules: 3, 2, 2 of them, the last one partial.
  EXPECT_EQ(ChunkOf(100, 3, 0), (Range{0, 48}));
  EXPECT_EQ(ChunkOf(100, 3, 1), (Range{48, 32}));
  EXPECT_EQ(ChunkOf(100, 3, 2), (Range{80, 20}));
  EXPECT_EQ(ChunkOf(1, 3, 0), (Range{0, 1}));
  EXPECT_EQ(ChunkOf(1, 3, 1), (Range{1, 0}));
}

}  // namespace
}  // namespace spccl::plan
