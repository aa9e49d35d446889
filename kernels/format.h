// The frame: a 48-byte header, then a body. docs/wire.md is the contract; all integers
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/dtype.h"

namespace spccl {

enum class Format : uint8_t {
  kDense = 0,
  kPici = 1,
  kPiciColumn = 2,
  kCoo = 3,
  kGap = 4,
  kErrorBound = 5,  // from here on lossy: kernels/lossy.h
  kQsgd2 = 6,
  kQsgd4 = 7,
  kQsgd8 = 8,
};
inline constexpr int kFormatCount = 9;
inline constexpr int kExactFormatCount = 5;  // the formats before the lossy ones

constexpr bool IsValidFormat(uint32_t code) {
  return code < kFormatCount;
}

constexpr bool IsLossy(Format format) {
  return static_cast<int>(format) >= kExactFormatCount;
}

constexpr std::string_view NameOf(Format format) {
  constexpr std::string_view kNames[kFormatCount] = {
      "dense", "pici", "pici-column", "coo", "gap", "errorbound", "qsgd2", "qsgd4", "qsgd8"};
  return kNames[static_cast<int>(format)];
}

constexpr std::optional<Format> FormatFromName(std::string_view name) {
  for (int code = 0; code < kFormatCount; ++code) {
    if (NameOf(static_cast<Format>(code)) == name) return static_cast<Format>(code);
  }
  return std::nullopt;
}

struct FrameHeader {
  uint32_t magic;
  uint8_t version;
  uint8_t format;
  uint8_t dtype;
  uint8_t reserved;
  uint64_t element_count;
  uint64_t nnz;
  uint64_t payload_bytes;
  uint32_t bitmap_offset;
  uint32_t index_offset;
  uint32_t values_offset;
  uint32_t header_crc;
};
static_assert(sizeof(FrameHeader) == 48);

inline constexpr uint32_t kFrameMagic = 0x46435053;  // "SPCF"
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameAlign = 16;
inline constexpr uint64_t kTileElements = 4096;
inline constexpr uint64_t kTileWords = 64;

// Section offsets are 32 bits and nnz prefixes too: the most elements that one frame may stand for,
// far above any slice. Every encoder refuses more.
inline constexpr uint64_t kMaxFrameElements = uint64_t{1} << 28;

}  // namespace spccl
