// pici-column, after the paper that pici comes from (Hough et al.): a warp a tile, two columns a
// lane. Encoding has the paper's three phases: scan the columns; make the index (here by look-back,
// as the tiles of a frame belong to many blocks); compact column by column. For comparison with the
// linear words, which read once and store values side by side.
#pragma once

#include "kernels/sparse/reduce-inl.h"

namespace spccl::sparse {

inline constexpr uint32_t kColumnTilesPerBlock = kBlockLanes / kWarpLanes;
inline constexpr uint32_t kSide = 64;

// The two columns of a lane, which are neighbours, and how many values come before them in the
// tile.
struct ColumnPair {
  uint64_t words[2];
  uint32_t ranks[2];
};

// By a warp.
template <SimtLane L>
SPCCL_DEVICE uint32_t RankColumns(L& lane, ColumnPair& pair) {
  const uint32_t first = BitCount(pair.words[0]);
  uint32_t total;
  pair.ranks[0] = ScanWarp(lane, first + BitCount(pair.words[1]), total);
  pair.ranks[1] = pair.ranks[0] + first;
  return total;
}

// By a warp: the lane's columns of a tile of a frame; ranks are counted from the frame's first
// value.
template <SimtLane L>
SPCCL_DEVICE ColumnPair OpenColumns(L& lane, const ConstPiciFrame& from, uint32_t tile) {
  const uint64_t at = sizeof(FrameHeader) + uint64_t{tile} * kTileBitmapBytes;
  ColumnPair pair;
  const Vec16 quad = lane.Load16Once(At(from.frame, at + lane.Lane() * sizeof(Vec16)));
  pair.words[0] = static_cast<uint64_t>(quad.word[1]) << 32 | quad.word[0];
  pair.words[1] = static_cast<uint64_t>(quad.word[3]) << 32 | quad.word[2];
  RankColumns(lane, pair);
  const uint32_t base = LoadAt<uint32_t>(At(from.frame, from.index_offset), tile);
  pair.ranks[0] += base;
  pair.ranks[1] += base;
  return pair;
}

template <class U>
struct EncodeColumn {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kColumnTilesPerBlock;
  struct Shared {};
  using Params = typename EncodePici<U>::Params;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint32_t tiles = TileOf(params.to.facts.elements);
    uint64_t taken = 0;
    if (tiles != 0 && lane.Lane() == 0) {
      const Turn mine = TakeTurn(lane, params.look_back, lane.Blocks() * kTilesPerBlock);
      taken = static_cast<uint64_t>(mine.epoch) << 32 | mine.tile;
    }
    taken = lane.Shuffle(kAllLanes, taken, 0);
    const Turn turn = {static_cast<uint32_t>(taken), static_cast<uint32_t>(taken >> 32)};
    if (turn.tile >= tiles) {
      if (tiles == 0 && lane.Warp() == 0) FinishPici(lane, params.to, 0);
      return;
    }
    const void* const from = At(params.dense, uint64_t{turn.tile} * kTile * sizeof(U));
    ColumnPair pair = Scan(lane, from, CountOf(params.to.facts.elements, turn.tile),
                           static_cast<U>(params.magnitude));
    const uint32_t count = RankColumns(lane, pair);
    if (lane.Lane() == 0) PublishCount(lane, params.look_back, turn, count);
    const uint32_t base = PrefixBefore(lane, params.look_back, turn, count);
    if (lane.Lane() == 0) {
      StoreAt<uint32_t>(At(params.to.frame, params.to.index_offset), turn.tile, base);
    }
    if (turn.tile + 1 == tiles) FinishPici(lane, params.to, uint64_t{base} + count);
    WriteColumns(lane, params, turn.tile, pair, base, from);
  }

 private:
  // Phase 1: the words of the lane's columns.
  template <SimtLane L>
  static SPCCL_DEVICE ColumnPair Scan(L& lane, const void* from, uint32_t count, U magnitude) {
    ColumnPair pair = {};
    for (uint32_t row = 0; row < kSide; ++row) {
      SPCCL_UNROLL
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t at = row * kSide + 2 * lane.Lane() + c;
        if (at < count && (LoadAt<U>(from, at) & magnitude) != 0) {
          pair.words[c] |= uint64_t{1} << row;
        }
      }
    }
    return pair;
  }

  // Phase 3.
  template <SimtLane L>
  static SPCCL_DEVICE void WriteColumns(L& lane, const Params& params, uint32_t tile,
                                        const ColumnPair& pair, uint32_t base, const void* from) {
    const uint64_t bitmap = sizeof(FrameHeader) + uint64_t{tile} * kTileBitmapBytes;
    const Vec16 quad = {
        {static_cast<uint32_t>(pair.words[0]), static_cast<uint32_t>(pair.words[0] >> 32),
         static_cast<uint32_t>(pair.words[1]), static_cast<uint32_t>(pair.words[1] >> 32)}};
    lane.Store16Once(At(params.to.frame, bitmap + lane.Lane() * sizeof(Vec16)), quad);
    void* const values = At(params.to.frame, params.to.values_offset + uint64_t{base} * sizeof(U));
    SPCCL_UNROLL
    for (uint32_t c = 0; c < 2; ++c) {
      uint32_t rank = pair.ranks[c];
      for (uint64_t word = pair.words[c]; word != 0; word &= word - 1) {
        const uint32_t at = LowestBit(word) * kSide + 2 * lane.Lane() + c;
        StoreAt<U>(values, rank++, LoadAt<U>(from, at));
      }
    }
  }
};

template <class U>
struct DecodeColumn {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kColumnTilesPerBlock;
  struct Shared {};
  using Params = typename DecodePici<U>::Params;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint32_t tile = lane.Block() * kTilesPerBlock + lane.Warp();
    if (tile >= TileOf(params.elements)) return;
    ColumnPair pair = OpenColumns(lane, params.from, tile);
    const uint8_t* const values = At(params.from.frame, params.from.values_offset);
    const uint32_t count = CountOf(params.elements, tile);
    void* const to = At(params.dense, uint64_t{tile} * kTile * sizeof(U));
    for (uint32_t row = 0; row < kSide; ++row) {
      SPCCL_UNROLL
      for (uint32_t c = 0; c < 2; ++c) {
        const bool stored = (pair.words[c] >> row & 1) != 0;
        const uint32_t at = row * kSide + 2 * lane.Lane() + c;
        const U value = stored ? LoadAt<U>(values, pair.ranks[c]++) : U{0};
        if (at < count) StoreAt<U>(to, at, value);
      }
    }
  }
};

template <class T, class R>
struct ReduceColumn {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kColumnTilesPerBlock;
  struct Shared {};
  using Params = ReduceParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint32_t tile = lane.Block() * kTilesPerBlock + lane.Warp();
    if (tile >= TileOf(params.elements)) return;
    ColumnPair pair = OpenColumns(lane, params.from, tile);
    const uint8_t* const values = At(params.from.frame, params.from.values_offset);
    void* const to = At(params.accumulator, uint64_t{tile} * kTile * sizeof(R));
    for (uint32_t row = 0; row < kSide; ++row) {
      SPCCL_UNROLL
      for (uint32_t c = 0; c < 2; ++c) {
        if ((pair.words[c] >> row & 1) == 0) continue;
        const uint32_t at = row * kSide + 2 * lane.Lane() + c;
        StoreAt<R>(to, at, Sum<R, T>(LoadAt<R>(to, at), LoadAt<T>(values, pair.ranks[c]++)));
      }
    }
  }
};

}  // namespace spccl::sparse
