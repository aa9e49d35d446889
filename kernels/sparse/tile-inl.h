// A tile of 4,096 elements and the block of 256 lanes that works on it: who holds which element,
// the tile's bitmap in shared memory, and the ranks of its ones.
#pragma once

#include "kernels/format.h"
#include "kernels/sparse/element-inl.h"

namespace spccl::sparse {

using simt::kAllLanes;
using simt::kWarpLanes;
using simt::SimtLane;
using simt::Vec16;

inline constexpr uint32_t kBlockLanes = 256;
inline constexpr uint32_t kTile = kTileElements;
inline constexpr uint32_t kTileWords32 = kTile / 32;
inline constexpr uint32_t kTileBitmapBytes = kTile / 8;
inline constexpr uint32_t kLaneElements = kTile / kBlockLanes;  // 16

// A lane holds its 16 elements in pieces of kPiece neighbours (what 128 bits of memory hold, so
// that a piece is one load); the pieces of a warp's lanes lie beside each other.
template <uint32_t kPieceElements>
struct TileMap {
  static constexpr uint32_t kPiece = kPieceElements;
  static constexpr uint32_t kPieces = kLaneElements / kPiece;
  static_assert(kPiece >= 2 && kPiece <= kLaneElements);

  // The element of the tile that piece `p` of a lane begins with.
  static SPCCL_DEVICE uint32_t First(uint32_t thread, uint32_t p) {
    return thread / kWarpLanes * (kWarpLanes * kLaneElements) + p * (kWarpLanes * kPiece) +
           thread % kWarpLanes * kPiece;
  }
};
template <class T>
using MapOf = TileMap<16 / sizeof(T)>;

template <class T>
struct alignas(16) Piece {
  T at[16 / sizeof(T)];
};

// A tile's bitmap, word by word of 32 bits, and the number of ones before each word.
struct TileBitmap {
  alignas(16) uint32_t words[kTileWords32];
  uint32_t ranks[kTileWords32];

  SPCCL_DEVICE uint32_t Bits(uint32_t first, uint32_t count) const {
    return words[first / 32] >> first % 32 & (count == 32 ? ~0u : BitsBelow(count));
  }
  // Ones before bit `first`.
  SPCCL_DEVICE uint32_t Rank(uint32_t first) const {
    return ranks[first / 32] + BitCount(words[first / 32] & BitsBelow(first % 32));
  }
};

// By a warp. The sum of `value` over the lanes below; `total` is the sum over all.
template <SimtLane L>
SPCCL_DEVICE uint32_t ScanWarp(L& lane, uint32_t value, uint32_t& total) {
  uint32_t sum = value;
  SPCCL_UNROLL
  for (uint32_t d = 1; d < kWarpLanes; d *= 2) {
    const uint32_t below = lane.ShuffleUp(kAllLanes, sum, d);
    if (lane.Lane() >= d) sum += below;
  }
  total = lane.Shuffle(kAllLanes, sum, kWarpLanes - 1);
  return sum - value;
}

// By a warp. Fills bitmap.ranks from bitmap.words; `quad` is the caller's four words (4 lane on).
// Returns the number of ones to every lane. Other warps may read the ranks after a SyncThreads().
template <SimtLane L>
SPCCL_DEVICE uint32_t RankWords(L& lane, TileBitmap& bitmap, const Vec16& quad) {
  uint32_t counts[4];
  SPCCL_UNROLL
  for (uint32_t i = 0; i < 4; ++i) counts[i] = BitCount(quad.word[i]);
  uint32_t total;
  uint32_t rank = ScanWarp(lane, counts[0] + counts[1] + counts[2] + counts[3], total);
  SPCCL_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    bitmap.ranks[4 * lane.Lane() + i] = rank;
    rank += counts[i];
  }
  return total;
}

// By a warp: reads a tile's bitmap of a frame into shared memory and ranks it.
template <SimtLane L>
SPCCL_DEVICE uint32_t LoadBitmap(L& lane, const void* frame_bitmap, TileBitmap& bitmap) {
  const Vec16 quad = lane.Load16Once(At(frame_bitmap, lane.Lane() * sizeof(Vec16)));
  StoreAt<Vec16>(bitmap.words, lane.Lane(), quad);
  return RankWords(lane, bitmap, quad);
}

// By a block: the caller's elements of the tile at `tile`, which has `count`; zeros past them.
template <class T, SimtLane L>
SPCCL_DEVICE void LoadTile(L& lane, const void* tile, uint32_t count,
                           T (&elements)[kLaneElements]) {
  using Map = MapOf<T>;
  const bool whole = count == kTile && IsAligned16(tile);
  SPCCL_UNROLL
  for (uint32_t p = 0; p < Map::kPieces; ++p) {
    const uint32_t first = Map::First(lane.Thread(), p);
    Piece<T> piece{};
    if (whole) {
      piece = std::bit_cast<Piece<T>>(lane.Load16Once(At(tile, first * sizeof(T))));
    } else {
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        if (first + k < count) piece.at[k] = LoadAt<T>(tile, first + k);
      }
    }
    SPCCL_UNROLL
    for (uint32_t k = 0; k < Map::kPiece; ++k) elements[p * Map::kPiece + k] = piece.at[k];
  }
}

// Stores one piece that begins with element `first` of a tile of `count` elements.
template <class T, SimtLane L>
SPCCL_DEVICE void StorePiece(L& lane, void* tile, uint32_t count, uint32_t first,
                             const Piece<T>& piece) {
  constexpr uint32_t kPiece = 16 / sizeof(T);
  if (first + kPiece <= count && IsAligned16(tile)) {
    lane.Store16Once(At(tile, first * sizeof(T)), std::bit_cast<Vec16>(piece));
    return;
  }
  SPCCL_UNROLL
  for (uint32_t k = 0; k < kPiece; ++k) {
    if (first + k < count) StoreAt<T>(tile, first + k, piece.at[k]);
  }
}

// By a block: writes `count` values that lie together in shared memory to the array at `to`, which
// is aligned to U and nothing else. `values` is aligned to 16 and has 4 readable bytes behind its
// last. Narrow values go by the 32 bits, which take two words of shared memory each.
template <class U, SimtLane L>
SPCCL_DEVICE void StoreValues(L& lane, const U* values, uint32_t count, void* to) {
  if constexpr (sizeof(U) >= 4) {
    for (uint32_t i = lane.Thread(); i < count; i += kBlockLanes) StoreAt<U>(to, i, values[i]);
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(U);
    const uint32_t past = reinterpret_cast<uintptr_t>(to) % 4 / sizeof(U);
    const uint32_t wanted = (kPerWord - past) % kPerWord;
    const uint32_t head = wanted < count ? wanted : count;
    const uint32_t words = (count - head) / kPerWord;
    const uint32_t tail = head + words * kPerWord;
    if (lane.Thread() < head) StoreAt<U>(to, lane.Thread(), values[lane.Thread()]);
    const uint32_t shift = head * sizeof(U) * 8;
    uint8_t* const aligned = At(to, head * sizeof(U));
    for (uint32_t w = lane.Thread(); w < words; w += kBlockLanes) {
      const uint64_t low = LoadAt<uint32_t>(values, w);
      const uint64_t high = LoadAt<uint32_t>(values, w + 1);
      StoreAt<uint32_t>(aligned, w, static_cast<uint32_t>((high << 32 | low) >> shift));
    }
    if (tail + lane.Thread() < count) {
      StoreAt<U>(to, tail + lane.Thread(), values[tail + lane.Thread()]);
    }
  }
}

}  // namespace spccl::sparse
