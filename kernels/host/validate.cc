#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "kernels/host/codec.h"
#include "kernels/host/validate_lossy.h"
#include "kernels/layout.h"

namespace spccl {
namespace {

using host::CheckPadding;
using host::CheckPlace;
using host::Fault;
using host::LoadAt;

// Set bits of a word, without the instruction, which this file's target may lack: std::popcount is
// a call and looks each byte up there.
constexpr uint64_t OnesOf(uint64_t word) {
  constexpr uint64_t kPairs = 0x5555555555555555, kFours = 0x3333333333333333;
  constexpr uint64_t kBytes = 0x0f0f0f0f0f0f0f0f, kOneInEach = 0x0101010101010101;
  word -= word >> 1 & kPairs;
  word = (word & kFours) + (word >> 2 & kFours);
  return ((word + (word >> 4)) & kBytes) * kOneInEach >> 56;
}
static_assert(OnesOf(0) == 0 && OnesOf(~uint64_t{0}) == 64 && OnesOf(0x8000'0001'0000'7001) == 6);

// The header's fixed fields: those that say what kind of frame this is.
FrameFault CheckIdentity(const FrameHeader& header) {
  if (header.magic != kFrameMagic) {
    return Fault(FrameError::kBadMagic, offsetof(FrameHeader, magic), header.magic, kFrameMagic);
  }
  if (header.version != kFrameVersion) {
    return Fault(FrameError::kBadVersion, offsetof(FrameHeader, version), header.version,
                 kFrameVersion);
  }
  if (!IsValidFormat(header.format)) {
    return Fault(FrameError::kBadFormat, offsetof(FrameHeader, format), header.format, kFormatCount,
                 Bound::kLessThan);
  }
  if (!IsValidDType(header.dtype)) {
    return Fault(FrameError::kBadDType, offsetof(FrameHeader, dtype), header.dtype, kDTypeCount,
                 Bound::kLessThan);
  }
  if (header.reserved != 0) {
    return Fault(FrameError::kBadReserved, offsetof(FrameHeader, reserved), header.reserved, 0);
  }
  const uint32_t crc = Crc32c(&header, offsetof(FrameHeader, header_crc));
  if (header.header_crc != crc) {
    return Fault(FrameError::kBadCrc, offsetof(FrameHeader, header_crc), header.header_crc, crc);
  }
  return {};
}

// The counts, the sizes and the sections' places. Afterwards every section of an exact format lies
// inside the frame.
FrameFault CheckLayout(const FrameHeader& header, size_t frame_bytes, FrameLayout& layout) {
  const Format format = static_cast<Format>(header.format);
  if (header.element_count > kMaxFrameElements) {
    return Fault(FrameError::kTooManyElements, offsetof(FrameHeader, element_count),
                 header.element_count, kMaxFrameElements, Bound::kAtMost);
  }
  if (header.nnz > header.element_count ||
      (format == Format::kDense && header.nnz != header.element_count)) {
    return Fault(FrameError::kBadNnz, offsetof(FrameHeader, nnz), header.nnz, header.element_count,
                 format == Format::kDense ? Bound::kExactly : Bound::kAtMost);
  }
  if (IsLossy(format)) return {};
  layout = LayoutOf(format, static_cast<DType>(header.dtype), header.element_count, header.nnz);
  return CheckPlace(header, frame_bytes, layout);
}

// The bits that word `w` of a last tile of `count` elements may have.
uint64_t AllowedBits(Format format, uint64_t w, uint64_t count) {
  uint64_t bits;
  if (format == Format::kPici) {
    const uint64_t first = w * 64;
    bits = count > first ? count - first : 0;
  } else {
    bits = count > w ? (count - w + 63) / 64 : 0;  // rows r with 64 r + w < count
  }
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

FrameFault CheckLastTile(Format format, const uint8_t* frame, const FrameLayout& layout,
                         uint64_t elements) {
  const uint64_t count = elements % kTileElements;
  if (count == 0) return {};
  const uint64_t bitmap = layout.bitmap + elements / kTileElements * kTileWords * 8;
  for (uint64_t w = 0; w < kTileWords; ++w) {
    const uint64_t word = LoadAt<uint64_t>(frame, bitmap + 8 * w);
    const uint64_t allowed = AllowedBits(format, w, count);
    if ((word & ~allowed) != 0) {
      return Fault(FrameError::kBadBitmap, bitmap + 8 * w, word, word & allowed);
    }
  }
  return {};
}

FrameFault CheckPici(const uint8_t* frame, const FrameHeader& header, const FrameLayout& layout) {
  const uint64_t tiles = TilesOf(header.element_count);
  uint64_t prefix = 0;
  for (uint64_t tile = 0; tile < tiles; ++tile) {
    const uint32_t stated = LoadAt<uint32_t>(frame, layout.index + 4 * tile);
    if (stated != prefix) {
      return Fault(FrameError::kBadIndex, layout.index + 4 * tile, stated, prefix);
    }
    const uint64_t words = layout.bitmap + tile * kTileWords * 8;
    for (uint64_t w = 0; w < kTileWords; ++w) {
      prefix += OnesOf(LoadAt<uint64_t>(frame, words + 8 * w));
    }
  }
  if (prefix != header.nnz) {
    return Fault(FrameError::kBadNnz, offsetof(FrameHeader, nnz), header.nnz, prefix);
  }
  const FrameFault last =
      CheckLastTile(static_cast<Format>(header.format), frame, layout, header.element_count);
  if (!last.ok()) return last;
  return CheckPadding(frame, layout.index + 4 * tiles, layout.values);
}

FrameFault CheckCoo(const uint8_t* frame, const FrameHeader& header, const FrameLayout& layout) {
  uint64_t lowest = 0;
  for (uint64_t i = 0; i < header.nnz; ++i) {
    const uint32_t index = LoadAt<uint32_t>(frame, layout.index + 4 * i);
    if (index < lowest) {
      return Fault(FrameError::kBadIndex, layout.index + 4 * i, index, lowest, Bound::kAtLeast);
    }
    lowest = uint64_t{index} + 1;
  }
  if (lowest > header.element_count) {  // rising, so the last one is the highest
    return Fault(FrameError::kBadIndex, layout.index + 4 * (header.nnz - 1), lowest - 1,
                 header.element_count, Bound::kLessThan);
  }
  return CheckPadding(frame, layout.index + 4 * header.nnz, layout.values);
}

bool BitAt(const uint8_t* bits, uint64_t at) {
  return (bits[at / 8] >> (at % 8) & 1) != 0;
}

// Set bits of [from, to). Reads whole bytes.
uint64_t CountOnes(const uint8_t* bits, uint64_t from, uint64_t to) {
  uint64_t count = 0;
  for (; from < to && from % 8 != 0; ++from) count += BitAt(bits, from);
  for (; from + 64 <= to; from += 64) {
    count += OnesOf(LoadAt<uint64_t>(bits, from / 8));
  }
  for (; from < to; ++from) count += BitAt(bits, from);
  return count;
}

// Padding from bit `bits` of the section at `begin` on.
FrameFault CheckBitPadding(const uint8_t* frame, uint64_t begin, uint64_t bits, uint64_t end) {
  const uint64_t at = begin + bits / 8;
  if (bits % 8 != 0 && frame[at] >> (bits % 8) != 0) {
    return Fault(FrameError::kBadPadding, at, frame[at], frame[at] & ((1u << (bits % 8)) - 1));
  }
  return CheckPadding(frame, begin + (bits + 7) / 8, end);
}

// Every tile's stretch of the bitmap holds as many ones as the index says, and ends with a zero.
FrameFault CheckGapTiles(const uint8_t* frame, const FrameHeader& header, const FrameLayout& layout,
                         const GapShape& shape) {
  const uint8_t* bitmap = frame + layout.bitmap;
  uint64_t begin = 0;
  for (uint64_t tile = 0; tile < shape.tiles; ++tile) {
    const uint64_t index = layout.index + 4 * tile;
    const uint64_t first_bucket = tile * kGapTileBuckets;
    const bool last = tile + 1 == shape.tiles;
    const uint64_t end = last ? header.nnz : LoadAt<uint32_t>(frame, index + 4);
    const uint64_t buckets = last ? shape.buckets - first_bucket : kGapTileBuckets;
    if (tile == 0 && LoadAt<uint32_t>(frame, index) != 0) {
      return Fault(FrameError::kBadIndex, index, LoadAt<uint32_t>(frame, index), 0);
    }
    if (end < begin || end > header.nnz) {
      return Fault(FrameError::kBadIndex, last ? index : index + 4, end,
                   end < begin ? begin : header.nnz,
                   end < begin ? Bound::kAtLeast : Bound::kAtMost);
    }
    const uint64_t from = begin + first_bucket;
    const uint64_t to = end + first_bucket + buckets;
    const uint64_t ones = CountOnes(bitmap, from, to);
    if (ones != end - begin || BitAt(bitmap, to - 1)) {
      return Fault(FrameError::kBadBitmap, layout.bitmap + from / 8, ones, end - begin);
    }
    begin = end;
  }
  return {};
}

// The positions rise strictly and stay below element_count.
FrameFault CheckGapPositions(const uint8_t* frame, const FrameHeader& header,
                             const FrameLayout& layout, const GapShape& shape) {
  uint64_t lowest = 0;
  uint64_t rank = 0;
  for (uint64_t base = 0; rank < header.nnz; base += 64) {
    uint64_t word = LoadAt<uint64_t>(frame, layout.bitmap + base / 8);
    for (; word != 0; word &= word - 1, ++rank) {
      const uint64_t bucket = base + static_cast<uint64_t>(std::countr_zero(word)) - rank;
      const uint64_t bit = rank * shape.shift;
      const uint64_t field = LoadAt<uint64_t>(frame, layout.low + bit / 8) >> (bit % 8);
      const uint64_t position =
          bucket << shape.shift | (field & ((uint64_t{1} << shape.shift) - 1));
      if (position < lowest || position >= header.element_count) {
        return Fault(FrameError::kBadIndex, layout.low + bit / 8, position,
                     position < lowest ? lowest : header.element_count,
                     position < lowest ? Bound::kAtLeast : Bound::kLessThan);
      }
      lowest = position + 1;
    }
  }
  return {};
}

FrameFault CheckGap(const uint8_t* frame, const FrameHeader& header, const FrameLayout& layout) {
  const GapShape shape = GapShapeOf(header.element_count, header.nnz);
  FrameFault fault = CheckPadding(frame, layout.index + 4 * shape.tiles, layout.bitmap);
  if (!fault.ok()) return fault;
  fault = CheckBitPadding(frame, layout.bitmap, header.nnz + shape.buckets, layout.low);
  if (!fault.ok()) return fault;
  fault = CheckBitPadding(frame, layout.low, header.nnz * shape.shift, layout.values);
  if (!fault.ok()) return fault;
  fault = CheckGapTiles(frame, header, layout, shape);
  return fault.ok() ? CheckGapPositions(frame, header, layout, shape) : fault;
}

FrameFault CheckFrame(const uint8_t* frame, size_t frame_bytes, const FrameHeader& header) {
  FrameLayout layout;
  const FrameFault fault = CheckLayout(header, frame_bytes, layout);
  if (!fault.ok()) return fault;
  switch (static_cast<Format>(header.format)) {
    case Format::kDense:
      return {};
    case Format::kPici:
    case Format::kPiciColumn:
      return CheckPici(frame, header, layout);
    case Format::kCoo:
      return CheckCoo(frame, header, layout);
    case Format::kGap:
      return CheckGap(frame, header, layout);
    case Format::kErrorBound:
    case Format::kQsgd2:
    case Format::kQsgd4:
    case Format::kQsgd8:
      return host::CheckLossy(frame, frame_bytes, header);
  }
  return {};
}

}  // namespace

FrameFault Validate(const void* frame, size_t frame_bytes) {
  if (frame_bytes < sizeof(FrameHeader)) {
    return Fault(FrameError::kTooShort, frame_bytes, frame_bytes, sizeof(FrameHeader));
  }
  const auto* bytes = static_cast<const uint8_t*>(frame);
  const FrameHeader header = LoadAt<FrameHeader>(bytes, 0);
  const FrameFault fault = CheckIdentity(header);
  return fault.ok() ? CheckFrame(bytes, frame_bytes, header) : fault;
}

FrameFault Validate(const void* frame, size_t frame_bytes, DType dtype, uint64_t elements) {
  if (frame_bytes < sizeof(FrameHeader)) return Validate(frame, frame_bytes);
  const auto* bytes = static_cast<const uint8_t*>(frame);
  const FrameHeader header = LoadAt<FrameHeader>(bytes, 0);
  const FrameFault fault = CheckIdentity(header);
  if (!fault.ok()) return fault;
  if (header.dtype != static_cast<uint8_t>(dtype)) {
    return Fault(FrameError::kWrongDType, offsetof(FrameHeader, dtype), header.dtype,
                 static_cast<uint8_t>(dtype));
  }
  if (header.element_count != elements) {
    return Fault(FrameError::kWrongCount, offsetof(FrameHeader, element_count),
                 header.element_count, elements);
  }
  return CheckFrame(bytes, frame_bytes, header);
}

std::string_view NameOf(Bound bound) {
  switch (bound) {
    case Bound::kExactly:
      return "";
    case Bound::kLessThan:
      return "less than ";
    case Bound::kAtMost:
      return "at most ";
    case Bound::kAtLeast:
      return "at least ";
  }
  return "";
}

std::string_view NameOf(FrameError error) {
  switch (error) {
    case FrameError::kNone:
      return "valid";
    case FrameError::kTooShort:
      return "too few bytes";
    case FrameError::kBadMagic:
      return "wrong magic";
    case FrameError::kBadVersion:
      return "unknown version";
    case FrameError::kBadFormat:
      return "unknown format";
    case FrameError::kBadDType:
      return "unknown dtype";
    case FrameError::kBadReserved:
      return "reserved field not zero";
    case FrameError::kBadCrc:
      return "header checksum does not match";
    case FrameError::kWrongDType:
      return "not the expected dtype";
    case FrameError::kWrongCount:
      return "not the expected element count";
    case FrameError::kTooManyElements:
      return "more elements than a frame may hold";
    case FrameError::kBadNnz:
      return "nonzero count does not match";
    case FrameError::kBadPayloadSize:
      return "payload size does not match";
    case FrameError::kBadBitmapOffset:
      return "wrong bitmap offset";
    case FrameError::kBadIndexOffset:
      return "wrong index offset";
    case FrameError::kBadValuesOffset:
      return "wrong values offset";
    case FrameError::kBadPadding:
      return "padding not zero";
    case FrameError::kBadBitmap:
      return "bitmap does not match";
    case FrameError::kBadIndex:
      return "index does not match";
    case FrameError::kBadQuantum:
      return "not a quantum or a scale";
  }
  return "unknown error";
}

}  // namespace spccl
