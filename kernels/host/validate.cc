#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "kernels/host/codec.h"
#include "kernels/layout.h"

namespace spccl {
namespace {

template <class T>
T LoadAt(const uint8_t* frame, uint64_t offset) {
  T value;
  std::memcpy(&value, frame + offset, sizeof(T));
  return value;
}

FrameFault Fault(FrameError error, uint64_t at, uint64_t found, uint64_t expected) {
  return {.error = error, .at = at, .found = found, .expected = expected};
}

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
    return Fault(FrameError::kBadFormat, offsetof(FrameHeader, format), header.format,
                 kFormatCount);
  }
  if (!IsValidDType(header.dtype)) {
    return Fault(FrameError::kBadDType, offsetof(FrameHeader, dtype), header.dtype, kDTypeCount);
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

// The counts, the sizes and the sections' places. Afterwards every section lies inside the frame.
FrameFault CheckLayout(const FrameHeader& header, size_t frame_bytes, FrameLayout& layout) {
  const Format format = static_cast<Format>(header.format);
  if (header.element_count > kMaxFrameElements) {
    return Fault(FrameError::kTooManyElements, offsetof(FrameHeader, element_count),
                 header.element_count, kMaxFrameElements);
  }
  if (header.nnz > header.element_count ||
      (format == Format::kDense && header.nnz != header.element_count)) {
    return Fault(FrameError::kBadNnz, offsetof(FrameHeader, nnz), header.nnz, header.element_count);
  }
  layout = LayoutOf(format, static_cast<DType>(header.dtype), header.element_count, header.nnz);
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

FrameFault CheckPadding(const uint8_t* frame, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; ++at) {
    if (frame[at] != 0) return Fault(FrameError::kBadPadding, at, frame[at], 0);
  }
  return {};
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
      prefix += static_cast<uint64_t>(std::popcount(LoadAt<uint64_t>(frame, words + 8 * w)));
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
    if (index < lowest) return Fault(FrameError::kBadIndex, layout.index + 4 * i, index, lowest);
    lowest = uint64_t{index} + 1;
  }
  if (lowest > header.element_count) {  // rising, so the last one is the highest
    return Fault(FrameError::kBadIndex, layout.index + 4 * (header.nnz - 1), lowest - 1,
                 header.element_count);
  }
  return CheckPadding(frame, layout.index + 4 * header.nnz, layout.values);
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
      return "bit set past the last element";
    case FrameError::kBadIndex:
      return "index does not match";
  }
  return "unknown error";
}

}  // namespace spccl
