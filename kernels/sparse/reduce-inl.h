// Reduce-into for pici: accumulator[i] += frame[i], what the frame does not hold stays bit for bit.
// T is the frame's storage type, R the accumulator's (float for a 16-bit T, or T); sums are made in
// float for 16-bit types. Integers are unsigned: sums wrap.
#pragma once

#include "kernels/sparse/pici-inl.h"

namespace spccl::sparse {

struct ReduceParams {
  ConstPiciFrame from;
  uint64_t elements;
  void* accumulator;
};

// For frames with many values: a block a tile, every lane reads, adds to and writes back the 128
// bits of the accumulator in which it has any.
template <class T, class R>
struct ReducePiciMany {
  static constexpr uint32_t kThreads = kBlockLanes;
  using Shared = TileBitmap;
  using Params = ReduceParams;
  using Map = MapOf<R>;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& bitmap, const Params& params) {
    const uint32_t tile = lane.Block();
    const uint32_t base = OpenTile(lane, params.from, tile, bitmap);
    const uint8_t* const values =
        At(params.from.frame, params.from.values_offset + uint64_t{base} * sizeof(T));
    void* const to = At(params.accumulator, uint64_t{tile} * kTile * sizeof(R));
    const bool wide = CountOf(params.elements, tile) == kTile && IsAligned16(to);
    Piece<R> pieces[Map::kPieces];
    if (wide) {  // all loads first, so that they are in flight together
      SPCCL_UNROLL
      for (uint32_t p = 0; p < Map::kPieces; ++p) {
        const uint32_t first = Map::First(lane.Thread(), p);
        if (bitmap.Bits(first, Map::kPiece) == 0) continue;
        pieces[p] = std::bit_cast<Piece<R>>(lane.Load16(At(to, first * sizeof(R))));
      }
    }
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      const uint32_t first = Map::First(lane.Thread(), p);
      const uint32_t bits = bitmap.Bits(first, Map::kPiece);
      if (bits == 0) continue;
      const uint32_t rank = bitmap.Rank(first);
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        if ((bits >> k & 1) == 0) continue;
        const T value = LoadAt<T>(values, rank + BitCount(bits & BitsBelow(k)));
        if (wide) {
          pieces[p].at[k] = Sum<R, T>(pieces[p].at[k], value);
        } else {
          StoreAt<R>(to, first + k, Sum<R, T>(LoadAt<R>(to, first + k), value));
        }
      }
      if (wide) lane.Store16(At(to, first * sizeof(R)), std::bit_cast<Vec16>(pieces[p]));
    }
  }
};

// For frames with few values: a warp a tile, a lane adds the values of 128 neighbouring elements
// one by one, and memory in which there are none is not touched.
template <class T, class R>
struct ReducePiciFew {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kBlockLanes / kWarpLanes;
  struct Shared {};
  using Params = ReduceParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    constexpr uint32_t kOwned = kTile / kWarpLanes;
    const uint32_t tile = lane.Block() * kTilesPerBlock + lane.Warp();
    if (tile >= TileOf(params.elements)) return;
    const uint64_t bitmap = sizeof(FrameHeader) + uint64_t{tile} * kTileBitmapBytes;
    const Vec16 quad = lane.Load16Once(At(params.from.frame, bitmap + lane.Lane() * sizeof(Vec16)));
    uint64_t low = static_cast<uint64_t>(quad.word[1]) << 32 | quad.word[0];
    uint64_t high = static_cast<uint64_t>(quad.word[3]) << 32 | quad.word[2];
    const uint32_t count = BitCount(low) + BitCount(high);
    uint32_t total;
    const uint32_t rank = ScanWarp(lane, count, total) +
                          LoadAt<uint32_t>(At(params.from.frame, params.from.index_offset), tile);
    const uint8_t* const values =
        At(params.from.frame, params.from.values_offset + uint64_t{rank} * sizeof(T));
    void* const to =
        At(params.accumulator, (uint64_t{tile} * kTile + lane.Lane() * kOwned) * sizeof(R));
    constexpr uint32_t kAtOnce = 4;  // independent sums in flight
    for (uint32_t i = 0; i < count; i += kAtOnce) {
      uint32_t places[kAtOnce];
      R sums[kAtOnce];
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        if (i + k >= count) continue;
        // By values, not by a reference to one of the two: that would put both in memory.
        const bool in_low = low != 0;
        places[k] = in_low ? LowestBit(low) : 64 + LowestBit(high);
        high = in_low ? high : high & (high - 1);
        low &= low - 1;  // nothing of nothing
        sums[k] = Sum<R, T>(LoadAt<R>(to, places[k]), LoadAt<T>(values, i + k));
      }
      SPCCL_UNROLL
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        if (i + k < count) StoreAt<R>(to, places[k], sums[k]);
      }
    }
  }
};

}  // namespace spccl::sparse
