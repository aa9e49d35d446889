// Byte shuffles that compress or expand a group of lanes by a mask, for targets that have a table
// look-up (pshufb, vpermd, tbl) but no compress instruction. A byte of 0xFF means zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spccl::host {

// A row a mask: kLanes * kLaneBytes shuffle bytes.
template <size_t kLanes, size_t kLaneBytes>
using ShuffleTable = std::array<std::array<uint8_t, kLanes * kLaneBytes>, size_t{1} << kLanes>;

// Row m moves the lanes that m has to the front, in order.
template <size_t kLanes, size_t kLaneBytes>
constexpr ShuffleTable<kLanes, kLaneBytes> MakeCompressTable() {
  ShuffleTable<kLanes, kLaneBytes> table{};
  for (size_t mask = 0; mask < table.size(); ++mask) {
    size_t out = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (((mask >> lane) & 1) == 0) continue;
      for (size_t byte = 0; byte < kLaneBytes; ++byte) {
        table[mask][out++] = static_cast<uint8_t>(lane * kLaneBytes + byte);
      }
    }
    while (out < kLanes * kLaneBytes) table[mask][out++] = 0xFF;
  }
  return table;
}

// Row m moves the first lanes to those that m has, and zero to the others.
template <size_t kLanes, size_t kLaneBytes>
constexpr ShuffleTable<kLanes, kLaneBytes> MakeExpandTable() {
  ShuffleTable<kLanes, kLaneBytes> table{};
  for (size_t mask = 0; mask < table.size(); ++mask) {
    size_t from = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const bool has = ((mask >> lane) & 1) != 0;
      for (size_t byte = 0; byte < kLaneBytes; ++byte) {
        table[mask][lane * kLaneBytes + byte] =
            has ? static_cast<uint8_t>(from * kLaneBytes + byte) : uint8_t{0xFF};
      }
      from += has ? 1 : 0;
    }
  }
  return table;
}

// 8 lanes of bytes serve bytes and, widened, 32-bit lanes.
alignas(64) inline constexpr auto kCompress8x1 = MakeCompressTable<8, 1>();
alignas(64) inline constexpr auto kExpand8x1 = MakeExpandTable<8, 1>();
alignas(64) inline constexpr auto kCompress8x2 = MakeCompressTable<8, 2>();
alignas(64) inline constexpr auto kExpand8x2 = MakeExpandTable<8, 2>();
// 4 lanes of 4 bytes and 2 of 8 for 128-bit vectors; 4 lanes of two words for 256-bit ones.
alignas(64) inline constexpr auto kCompress4x4 = MakeCompressTable<4, 4>();
alignas(64) inline constexpr auto kExpand4x4 = MakeExpandTable<4, 4>();
alignas(64) inline constexpr auto kCompress4x2 = MakeCompressTable<4, 2>();
alignas(64) inline constexpr auto kExpand4x2 = MakeExpandTable<4, 2>();
alignas(64) inline constexpr auto kCompress2x8 = MakeCompressTable<2, 8>();
alignas(64) inline constexpr auto kExpand2x8 = MakeExpandTable<2, 8>();

}  // namespace spccl::host
