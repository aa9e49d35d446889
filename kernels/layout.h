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
  uint64_t values = 0;
  uint64_t total = 0;  // header and payload
};

constexpr uint64_t TilesOf(uint64_t elements) {
  return (elements + kTileElements - 1) / kTileElements;
}

constexpr uint64_t AlignUpFrame(uint64_t offset) {
  return (offset + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

// The only layout that a frame of these facts may have. Cannot wrap for elements and nnz up to
// kMaxFrameElements.
constexpr FrameLayout LayoutOf(Format format, DType dtype, uint64_t elements, uint64_t nnz) {
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
  }
  layout.total = layout.values + nnz * SizeOf(dtype);
  return layout;
}

}  // namespace spccl
