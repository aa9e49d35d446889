#include "kernels/host/validate_lossy.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/lossy_layout.h"

namespace spccl::host {
namespace {

// Bits of a group's planes that stand for elements.
uint64_t MembersOf(uint64_t group, uint64_t elements) {
  const uint64_t first = group * kGroupElements;
  if (elements <= first) return 0;
  const uint64_t count = elements - first;
  return count >= kGroupElements ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Whether a positive, normal number of the frame's type.
bool IsQuantum(double quantum, DType dtype) {
  if (dtype == DType::kFloat64) return std::isnormal(quantum) && quantum > 0;
  if (!(quantum >= double{std::numeric_limits<float>::min()} &&
        quantum <= double{std::numeric_limits<float>::max()})) {
    return false;
  }
  return double{static_cast<float>(quantum)} == quantum;
}

FrameFault CheckLossyDType(const FrameHeader& header) {
  if (LossyCarries(static_cast<DType>(header.dtype))) return {};
  return Fault(FrameError::kBadDType, offsetof(FrameHeader, dtype), header.dtype,
               static_cast<uint64_t>(DType::kFloat32));
}

// Bits that a group's planes may have: those of elements, but for a block's first, which is its
// base.
uint64_t DifferencesOf(uint64_t group, uint64_t elements) {
  const uint64_t members = MembersOf(group, elements);
  return group % kErrorBlockGroups == 0 ? members & ~uint64_t{1} : members;
}

// The groups' widths: as many plane words as the index and the head say.
FrameFault CheckWidths(const uint8_t* frame, const FrameHeader& header,
                       const ErrorBoundLayout& layout, uint64_t plane_words) {
  const uint64_t most = 8 * SizeOf(static_cast<DType>(header.dtype));
  uint64_t words = 0;
  for (uint64_t group = 0; group < ErrorBlocksOf(header.element_count) * kErrorBlockGroups;
       ++group) {
    if (group % kErrorBlockGroups == 0) {
      const uint64_t index = layout.index + 4 * (group / kErrorBlockGroups);
      const uint32_t stated = LoadAt<uint32_t>(frame, index);
      if (stated != words) return Fault(FrameError::kBadIndex, index, stated, words);
    }
    const uint64_t width = frame[layout.widths + group];
    const bool empty = MembersOf(group, header.element_count) == 0;
    if (words + width > plane_words) {
      return Fault(FrameError::kBadIndex, layout.widths + group, width, plane_words - words,
                   Bound::kAtMost);
    }
    if (width > most || (empty && width != 0)) {
      return Fault(FrameError::kBadIndex, layout.widths + group, width, empty ? 0 : most,
                   Bound::kAtMost);
    }
    words += width;
  }
  if (words != plane_words) {
    return Fault(FrameError::kBadIndex, layout.head + offsetof(ErrorBoundHead, plane_words),
                 plane_words, words);
  }
  return {};
}

// Nothing in the planes that is no difference. The widths have been checked.
FrameFault CheckPlanes(const uint8_t* frame, const FrameHeader& header,
                       const ErrorBoundLayout& layout) {
  uint64_t at = layout.planes;
  for (uint64_t group = 0; group < GroupsOf(header.element_count); ++group) {
    const uint64_t end = at + 8 * uint64_t{frame[layout.widths + group]};
    const uint64_t may = DifferencesOf(group, header.element_count);
    if (may == ~uint64_t{0}) at = end;  // as most
    for (; at < end; at += 8) {
      const auto word = LoadAt<uint64_t>(frame, at);
      if ((word & ~may) != 0) return Fault(FrameError::kBadBitmap, at, word, word & may);
    }
  }
  return {};
}

FrameFault CheckPositions(const uint8_t* frame, const FrameHeader& header, uint64_t positions) {
  uint64_t lowest = 0;
  for (uint64_t i = 0; i < header.nnz; ++i) {
    const uint32_t position = LoadAt<uint32_t>(frame, positions + 4 * i);
    if (position < lowest || position >= header.element_count) {
      return Fault(FrameError::kBadIndex, positions + 4 * i, position,
                   position < lowest ? lowest : header.element_count,
                   position < lowest ? Bound::kAtLeast : Bound::kLessThan);
    }
    lowest = uint64_t{position} + 1;
  }
  return {};
}

FrameFault CheckErrorBoundPadding(const uint8_t* frame, const FrameHeader& header,
                                  const ErrorBoundLayout& layout, uint64_t plane_words) {
  const uint64_t blocks = ErrorBlocksOf(header.element_count);
  const uint64_t size = SizeOf(static_cast<DType>(header.dtype));
  const uint64_t gaps[][2] = {{layout.index + 4 * blocks, layout.bases},
                              {layout.bases + size * blocks, layout.widths},
                              {layout.widths + kErrorBlockGroups * blocks, layout.planes},
                              {layout.planes + 8 * plane_words, layout.positions},
                              {layout.positions + 4 * header.nnz, layout.values}};
  for (const auto& [from, to] : gaps) {
    const FrameFault fault = CheckPadding(frame, from, to);
    if (!fault.ok()) return fault;
  }
  return {};
}

FrameFault CheckErrorBound(const uint8_t* frame, size_t frame_bytes, const FrameHeader& header) {
  if (frame_bytes < sizeof(FrameHeader) + sizeof(ErrorBoundHead)) {
    return Fault(FrameError::kTooShort, frame_bytes, frame_bytes,
                 sizeof(FrameHeader) + sizeof(ErrorBoundHead));
  }
  const auto head = LoadAt<ErrorBoundHead>(frame, sizeof(FrameHeader));
  const auto dtype = static_cast<DType>(header.dtype);
  const ErrorBoundLayout layout =
      ErrorBoundLayoutOf(SizeOf(dtype), header.element_count, header.nnz, head.plane_words);
  FrameFault fault = CheckPlace(header, frame_bytes,
                                {.bitmap = layout.planes,
                                 .index = layout.head,
                                 .values = layout.values,
                                 .total = layout.total});
  if (!fault.ok()) return fault;
  if (!IsQuantum(head.quantum, dtype)) {
    return Fault(FrameError::kBadQuantum, layout.head, std::bit_cast<uint64_t>(head.quantum),
                 std::bit_cast<uint64_t>(1.0));
  }
  if (head.reserved != 0) {
    return Fault(FrameError::kBadReserved, layout.head + offsetof(ErrorBoundHead, reserved),
                 head.reserved, 0);
  }
  fault = CheckErrorBoundPadding(frame, header, layout, head.plane_words);
  if (!fault.ok()) return fault;
  fault = CheckWidths(frame, header, layout, head.plane_words);
  if (!fault.ok()) return fault;
  fault = CheckPlanes(frame, header, layout);
  return fault.ok() ? CheckPositions(frame, header, layout.positions) : fault;
}

// A scale is zero or a positive, finite number.
template <class T>
FrameFault CheckScales(const uint8_t* frame, const FrameHeader& header, uint64_t scales) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  for (uint64_t bucket = 0; bucket < header.nnz; ++bucket) {
    const T scale = LoadAt<T>(frame, scales + bucket * sizeof(T));
    if (!(scale >= 0 && scale <= std::numeric_limits<T>::max()) || std::signbit(scale)) {
      return Fault(FrameError::kBadQuantum, scales + bucket * sizeof(T), std::bit_cast<Bits>(scale),
                   0);
    }
  }
  return {};
}

// No level below the lowest (which folds to all ones), and none beyond the last element.
FrameFault CheckLevels(const uint8_t* frame, const FrameHeader& header, uint64_t planes,
                       uint32_t bits) {
  for (uint64_t group = 0; group < GroupsOf(header.element_count); ++group) {
    const uint64_t members = MembersOf(group, header.element_count);
    const uint64_t first = planes + 8 * group * bits;
    uint64_t any = 0, all = ~uint64_t{0};
    for (uint64_t plane = 0; plane < bits; ++plane) {
      const auto word = LoadAt<uint64_t>(frame, first + 8 * plane);
      any |= word;
      all &= word;
    }
    if (all != 0 || (any & ~members) != 0) {
      return Fault(FrameError::kBadBitmap, first, all != 0 ? all : any,
                   all != 0 ? 0 : any & members);
    }
  }
  return {};
}

FrameFault CheckQsgd(const uint8_t* frame, size_t frame_bytes, const FrameHeader& header) {
  const uint32_t bits = QsgdBits(static_cast<Format>(header.format));
  const auto dtype = static_cast<DType>(header.dtype);
  if (header.nnz != BucketsOf(header.element_count)) {
    return Fault(FrameError::kBadNnz, offsetof(FrameHeader, nnz), header.nnz,
                 BucketsOf(header.element_count));
  }
  const QsgdLayout layout = QsgdLayoutOf(bits, SizeOf(dtype), header.element_count);
  FrameFault fault =
      CheckPlace(header, frame_bytes,
                 {.bitmap = layout.planes, .values = layout.scales, .total = layout.total});
  if (!fault.ok()) return fault;
  const uint64_t end = layout.planes + 8 * GroupsOf(header.element_count) * bits;
  fault = CheckPadding(frame, end, layout.scales);
  if (!fault.ok()) return fault;
  fault = CheckLevels(frame, header, layout.planes, bits);
  if (!fault.ok()) return fault;
  return dtype == DType::kFloat64 ? CheckScales<double>(frame, header, layout.scales)
                                  : CheckScales<float>(frame, header, layout.scales);
}

}  // namespace

FrameFault CheckPlace(const FrameHeader& header, size_t frame_bytes, const FrameLayout& layout) {
  if (header.payload_bytes != layout.total - sizeof(FrameHeader)) {
    return Fault(FrameError::kBadPayloadSize, offsetof(FrameHeader, payload_bytes),
                 header.payload_bytes, layout.total - sizeof(FrameHeader));
  }
  if (header.bitmap_offset != layout.bitmap) {
    return Fault(FrameError::kBadBitmapOffset, offsetof(FrameHeader, bitmap_offset),
                 header.bitmap_offset, layout.bitmap);
  }
  if (header.index_offset != layout.index) {
    return Fault(FrameError::kBadIndexOffset, offsetof(FrameHeader, index_offset),
                 header.index_offset, layout.index);
  }
  if (header.values_offset != layout.values) {
    return Fault(FrameError::kBadValuesOffset, offsetof(FrameHeader, values_offset),
                 header.values_offset, layout.values);
  }
  if (frame_bytes < layout.total) {
    return Fault(FrameError::kTooShort, frame_bytes, frame_bytes, layout.total);
  }
  if (frame_bytes > layout.total) {
    return Fault(FrameError::kBadPayloadSize, layout.total, frame_bytes, layout.total);
  }
  return {};
}

FrameFault CheckLossy(const uint8_t* frame, size_t frame_bytes, const FrameHeader& header) {
  const FrameFault fault = CheckLossyDType(header);
  if (!fault.ok()) return fault;
  return static_cast<Format>(header.format) == Format::kErrorBound
             ? CheckErrorBound(frame, frame_bytes, header)
             : CheckQsgd(frame, frame_bytes, header);
}

}  // namespace spccl::host
