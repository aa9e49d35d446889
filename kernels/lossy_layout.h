// Where the sections of lossy frames lie. Pure arithmetic, for every encoder and for the validator.
#pragma once

#include <cstdint>

#include "kernels/format.h"
#include "kernels/layout.h"
#include "kernels/lossy.h"

namespace spccl {

// Both keep small integers as planes: of a group of 64 integers, plane k is the word whose bit i is
// bit k of integer i.
inline constexpr uint64_t kGroupElements = 64;

constexpr uint64_t GroupsOf(uint64_t elements) {
  return (elements + kGroupElements - 1) / kGroupElements;
}

// errorbound: a block is four groups; it can be decoded by itself.
inline constexpr uint64_t kErrorBlockElements = 256;
inline constexpr uint64_t kErrorBlockGroups = kErrorBlockElements / kGroupElements;

constexpr uint64_t ErrorBlocksOf(uint64_t elements) {
  return (elements + kErrorBlockElements - 1) / kErrorBlockElements;
}

// The first 16 bytes of the index section.
struct ErrorBoundHead {
  double quantum;        // what an integer counts
  uint32_t plane_words;  // of all blocks
  uint32_t reserved;     // 0
};
static_assert(sizeof(ErrorBoundHead) == 16);

// Offsets from the frame's start in bytes.
struct ErrorBoundLayout {
  uint64_t head = sizeof(FrameHeader);
  uint64_t index = 0;      // a u32 a block: plane words of the blocks before it
  uint64_t bases = 0;      // an integer of the elements' width a block
  uint64_t widths = 0;     // a byte a group: its planes; of all groups of the last block, too
  uint64_t planes = 0;     // the header's bitmap_offset
  uint64_t positions = 0;  // a u32 for each element that is kept exactly
  uint64_t values = 0;     // those elements
  uint64_t total = 0;
};

// Cannot wrap for elements and exact up to kMaxFrameElements and 32-bit plane words.
constexpr ErrorBoundLayout ErrorBoundLayoutOf(uint64_t element_bytes, uint64_t elements,
                                              uint64_t exact, uint64_t plane_words) {
  const uint64_t blocks = ErrorBlocksOf(elements);
  ErrorBoundLayout layout;
  layout.index = layout.head + sizeof(ErrorBoundHead);
  layout.bases = AlignUpFrame(layout.index + blocks * sizeof(uint32_t));
  layout.widths = AlignUpFrame(layout.bases + blocks * element_bytes);
  layout.planes = AlignUpFrame(layout.widths + blocks * kErrorBlockGroups);
  layout.positions = AlignUpFrame(layout.planes + plane_words * sizeof(uint64_t));
  layout.values = AlignUpFrame(layout.positions + exact * sizeof(uint32_t));
  layout.total = layout.values + exact * element_bytes;
  return layout;
}

// qsgd: a bucket's elements share a scale.
inline constexpr uint64_t kBucketElements = 1024;

constexpr uint64_t BucketsOf(uint64_t elements) {
  return (elements + kBucketElements - 1) / kBucketElements;
}

struct QsgdLayout {
  uint64_t planes = sizeof(FrameHeader);  // the header's bitmap_offset
  uint64_t scales = 0;                    // the header's values_offset: one a bucket
  uint64_t total = 0;
};

constexpr QsgdLayout QsgdLayoutOf(uint32_t bits, uint64_t element_bytes, uint64_t elements) {
  QsgdLayout layout;
  layout.scales = AlignUpFrame(layout.planes + GroupsOf(elements) * bits * sizeof(uint64_t));
  layout.total = layout.scales + BucketsOf(elements) * element_bytes;
  return layout;
}

}  // namespace spccl
