// Where the sections of a frame lie. Pure arithmetic, for every encoder and for the validator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/format.h"

namespace spccl {

// Offsets from the frame's start in bytes; 0 where the format has no such section.
struct FrameLayout {
  uint64_t bitmap = 0;
  uint64_t index = 0;
  uint64_t low = 0;  // gap only, and in no field of the header
  uint64_t values = 0;
  uint64_t total = 0;  // header and payload
};

constexpr uint64_t TilesOf(uint64_t elements) {
  return (elements + kTileElements - 1) / kTileElements;
}

constexpr uint64_t AlignUpFrame(uint64_t offset) {
  return (offset + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

// How a gap frame cuts a vector into buckets, and buckets into tiles.
struct GapShape {
  uint32_t shift;    // a bucket is 2^shift elements, a position's low bits so many
  uint64_t buckets;  // a zero each in the bitmap
  uint64_t tiles;    // an index entry each
};
inline constexpr uint64_t kGapTileBuckets = 64;
inline constexpr uint32_t kMaxGapShift = 28;

// The shift costs shift + 1 bits a value, and a bucket one bit and its 64th of an index entry: the
// largest shift with nnz << shift <= 1.5 elements makes the sum smallest.
constexpr GapShape GapShapeOf(uint64_t elements, uint64_t nnz) {
  uint32_t shift = 0;
  while (shift < kMaxGapShift && nnz << (shift + 2) <= 3 * elements) ++shift;
  const uint64_t buckets = (elements + (uint64_t{1} << shift) - 1) >> shift;
  return {shift, buckets, (buckets + kGapTileBuckets - 1) / kGapTileBuckets};
}

// Readers may load a word from any byte of the low bits, and writers store one.
inline constexpr uint64_t kGapLowSlack = 8;

// The only layout that a frame of an exact format with these facts may have (those of the lossy
// ones are in kernels/lossy_layout.h; for them all is 0). Cannot wrap for elements and nnz up to
// kMaxFrameElements.
constexpr FrameLayout LayoutOf(Format format, uint64_t element_bytes, uint64_t elements,
                               uint64_t nnz) {
  FrameLayout layout;
  switch (format) {
    case Format::kDense:
      layout.values = sizeof(FrameHeader);
      nnz = elements;
      break;
    case Format::kPici:
    case Format::kPiciColumn:
      layout.bitmap = sizeof(FrameHeader);
      layout.index = layout.bitmap + TilesOf(elements) * kTileWords * sizeof(uint64_t);
      layout.values = AlignUpFrame(layout.index + TilesOf(elements) * sizeof(uint32_t));
      break;
    case Format::kCoo:
      layout.index = sizeof(FrameHeader);
      layout.values = AlignUpFrame(layout.index + nnz * sizeof(uint32_t));
      break;
    case Format::kGap: {
      const GapShape shape = GapShapeOf(elements, nnz);
      layout.index = sizeof(FrameHeader);
      layout.bitmap = AlignUpFrame(layout.index + shape.tiles * sizeof(uint32_t));
      layout.low = AlignUpFrame(layout.bitmap + (nnz + shape.buckets + 7) / 8);
      layout.values = AlignUpFrame(layout.low + (nnz * shape.shift + 7) / 8 + kGapLowSlack);
      break;
    }
    case Format::kErrorBound:
    case Format::kQsgd2:
    case Format::kQsgd4:
    case Format::kQsgd8:
      return layout;
  }
  layout.total = layout.values + nnz * element_bytes;
  return layout;
}
constexpr FrameLayout LayoutOf(Format format, DType dtype, uint64_t elements, uint64_t nnz) {
  return LayoutOf(format, SizeOf(dtype), elements, nnz);
}

}  // namespace spccl
