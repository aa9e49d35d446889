// A frame's header, written by a warp.
#pragma once

#include "kernels/layout.h"
#include "kernels/sparse/tile-inl.h"

namespace spccl::sparse {

// What a header says of a frame, but for the number of values.
struct FrameFacts {
  uint64_t elements;
  uint8_t format;
  uint8_t dtype;
  uint8_t element_bytes;
};

inline constexpr uint32_t kHeaderWords =
    sizeof(FrameHeader) / sizeof(uint32_t);                 // the last: the CRC
inline constexpr uint32_t kCrc32cPolynomial = 0x82F63B78u;  // bit 31 is x^0

// a b mod the CRC-32C polynomial, coefficients reflected.
SPCCL_DEVICE constexpr uint32_t MultiplyMod(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kCrc32cPolynomial : b >> 1;
  }
  return product;
}

// x^(32 (11 - i)): what word i of the header counts for in its CRC.
struct CrcPowers {
  uint32_t of_word[kHeaderWords - 1];
};
constexpr CrcPowers MakeCrcPowers() {
  CrcPowers powers{};
  uint32_t power = 1u << 31;
  for (uint32_t i = kHeaderWords - 1; i-- > 0;) {
    for (int bit = 0; bit < 32; ++bit) {
      power = (power & 1) != 0 ? (power >> 1) ^ kCrc32cPolynomial : power >> 1;
    }
    powers.of_word[i] = power;
  }
  return powers;
}
SPCCL_DEVICE_CONSTANT CrcPowers kCrcPowers = MakeCrcPowers();

// Word i of a header, but for the CRC.
SPCCL_DEVICE uint32_t HeaderWord(const FrameFacts& facts, const FrameLayout& layout, uint64_t nnz,
                                 uint32_t i) {
  const uint64_t payload = layout.total - sizeof(FrameHeader);
  switch (i) {
    case 0:
      return kFrameMagic;
    case 1:
      return kFrameVersion | static_cast<uint32_t>(facts.format) << 8 |
             static_cast<uint32_t>(facts.dtype) << 16;
    case 2:
      return static_cast<uint32_t>(facts.elements);
    case 3:
      return static_cast<uint32_t>(facts.elements >> 32);
    case 4:
      return static_cast<uint32_t>(nnz);
    case 5:
      return static_cast<uint32_t>(nnz >> 32);
    case 6:
      return static_cast<uint32_t>(payload);
    case 7:
      return static_cast<uint32_t>(payload >> 32);
    case 8:
      return static_cast<uint32_t>(layout.bitmap);
    case 9:
      return static_cast<uint32_t>(layout.index);
    case 10:
      return static_cast<uint32_t>(layout.values);
    default:
      return 0;
  }
}

// By a warp: writes the header of a frame with `nnz` values. The CRC is linear in the words: lane i
// takes word i times its power, and the lanes add up.
template <SimtLane L>
SPCCL_DEVICE void WriteHeader(L& lane, const FrameFacts& facts, const FrameLayout& layout,
                              uint64_t nnz, void* frame) {
  const uint32_t word = HeaderWord(facts, layout, nnz, lane.Lane());
  uint32_t crc = 0;
  if (lane.Lane() < kHeaderWords - 1) {
    // The register starts with ones: the same as the first word inverted.
    crc = MultiplyMod(lane.Lane() == 0 ? ~word : word, kCrcPowers.of_word[lane.Lane()]);
  }
  SPCCL_UNROLL
  for (uint32_t d = 1; d < kWarpLanes; d *= 2) crc ^= lane.ShuffleXor(kAllLanes, crc, d);
  if (lane.Lane() < kHeaderWords) {
    StoreAt<uint32_t>(frame, lane.Lane(), lane.Lane() == kHeaderWords - 1 ? ~crc : word);
  }
}

// By a warp: zeros from byte `from` of a frame, a multiple of 4, to `to`, less than 128 bytes on.
template <SimtLane L>
SPCCL_DEVICE void ZeroPadding(L& lane, void* frame, uint64_t from, uint64_t to) {
  const uint64_t at = from / 4 + lane.Lane();
  if (at * 4 < to) StoreAt<uint32_t>(frame, at, 0);
}

}  // namespace spccl::sparse
