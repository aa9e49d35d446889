// coo: indices and values of the nonzeros. Where the values of a frame begin hangs on their number,
// which is known when all are found, so encoding writes them aside first and moves them in a
// second, small kernel. gap is made of the same first kernel (gap-inl.h).
#pragma once

#include "kernels/sparse/reduce-inl.h"

namespace spccl::sparse {

// Compacts dense elements to indices and values. A block a tile. *found gets their number.
template <class U>
struct CollectNonzeros {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {
    EncodeShared<U> tile;
    uint16_t places[kTile];
  };
  struct Params {
    const void* dense;
    uint64_t elements;
    uint64_t magnitude;
    LookBack look_back;
    void* indices;  // u32 each
    void* values;
    uint64_t* found;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    using Map = MapOf<U>;
    EncodeShared<U>& state = shared.tile;
    if (params.elements == 0) {
      if (lane.Thread() == 0) *params.found = 0;
      return;
    }
    TakeTile(lane, state, params.look_back);
    const uint32_t tile = state.turn.tile;
    U elements[kLaneElements];
    LoadTile<U>(lane, At(params.dense, uint64_t{tile} * kTile * sizeof(U)),
                CountOf(params.elements, tile), elements);
    MarkNonzeros<Map>(lane, elements, static_cast<U>(params.magnitude), state.bitmap);
    lane.SyncThreads();
    if (lane.Warp() == 0) {
      const Vec16 quad = LoadAt<Vec16>(state.bitmap.words, lane.Lane());
      const uint32_t count = RankWords(lane, state.bitmap, quad);
      if (lane.Lane() == 0) {
        PublishCount(lane, params.look_back, state.turn, count);
        state.count = count;
      }
    }
    lane.SyncThreads();
    if (lane.Warp() == 0) {
      const uint32_t base = PrefixBefore(lane, params.look_back, state.turn, state.count);
      if (lane.Lane() == 0) {
        state.base = base;
        if (tile + 1 == TileOf(params.elements)) *params.found = uint64_t{base} + state.count;
      }
    }
    Compact<Map>(lane, elements, state.bitmap, state.values);
    CompactPlaces<Map>(lane, state.bitmap, shared.places);
    lane.SyncThreads();
    for (uint32_t i = lane.Thread(); i < state.count; i += kBlockLanes) {
      StoreAt<uint32_t>(params.indices, uint64_t{state.base} + i, tile * kTile + shared.places[i]);
    }
    StoreValues(lane, state.values, state.count,
                At(params.values, uint64_t{state.base} * sizeof(U)));
  }

 private:
  template <class Map, SimtLane L>
  static SPCCL_DEVICE void CompactPlaces(L& lane, const TileBitmap& bitmap, uint16_t* places) {
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      const uint32_t first = Map::First(lane.Thread(), p);
      const uint32_t bits = bitmap.Bits(first, Map::kPiece);
      uint32_t rank = bitmap.Rank(first);
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        if ((bits >> k & 1) != 0) places[rank++] = static_cast<uint16_t>(first + k);
      }
    }
  }
};

// By all blocks together: copies `bytes` bytes between two addresses on multiples of 16, of which
// the last few may not be written past.
template <SimtLane L>
SPCCL_DEVICE void CopyBytes(L& lane, const void* from, void* to, uint64_t bytes) {
  const uint64_t lanes = uint64_t{lane.Blocks()} * kBlockLanes;
  const uint64_t own = uint64_t{lane.Block()} * kBlockLanes + lane.Thread();
  for (uint64_t i = own; i < bytes / 16; i += lanes) {
    lane.Store16Once(At(to, i * 16), lane.Load16Once(At(from, i * 16)));
  }
  const uint64_t tail = bytes / 16 * 16 + own;
  if (tail < bytes) StoreAt<uint8_t>(to, tail, LoadAt<uint8_t>(from, tail));
}

// Moves a dense or coo frame's values to their place and writes the header. Any number of blocks.
struct FinishFrame {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    FrameFacts facts;
    const uint64_t* found;  // the number of values; null: every element is one
    const void* values;     // aligned to 16; null: they are in their place
    uint8_t* frame;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const FrameFacts& facts = params.facts;
    const uint64_t nnz = params.found != nullptr ? *params.found : facts.elements;
    const FrameLayout layout =
        LayoutOf(static_cast<Format>(facts.format), facts.element_bytes, facts.elements, nnz);
    if (params.values != nullptr) {
      CopyBytes(lane, params.values, At(params.frame, layout.values), nnz * facts.element_bytes);
    }
    if (lane.Block() != 0 || lane.Warp() != 0) return;
    WriteHeader(lane, facts, layout, nnz, params.frame);
    if (layout.index != 0) {
      ZeroPadding(lane, params.frame, layout.index + nnz * sizeof(uint32_t), layout.values);
    }
  }
};

// By a warp: how many of `count` rising indices are below `key`. Every step asks 32 of them.
template <SimtLane L>
SPCCL_DEVICE uint64_t LowerBound(L& lane, const void* indices, uint64_t count, uint64_t key) {
  uint64_t low = 0;
  uint64_t high = count;
  while (low < high) {
    const uint64_t step = (high - low + kWarpLanes - 1) / kWarpLanes;
    const uint64_t probe = low + (lane.Lane() + 1) * step - 1;
    const bool below = probe < high && LoadAt<uint32_t>(indices, probe) < key;
    const uint64_t passed = BitCount(lane.Ballot(kAllLanes, below));
    high = Smaller(high, low + (passed + 1) * step - 1);
    low += passed * step;
  }
  return low;
}

struct ConstCooFrame {
  const uint8_t* frame;
  uint32_t index_offset;
  uint32_t values_offset;
  uint64_t nnz;
};

// By a block: writes a tile that was put together in shared memory to its place.
template <class U, SimtLane L>
SPCCL_DEVICE void StoreTile(L& lane, const U* tile, uint32_t count, void* to) {
  using Map = MapOf<U>;
  SPCCL_UNROLL
  for (uint32_t p = 0; p < Map::kPieces; ++p) {
    const uint32_t first = Map::First(lane.Thread(), p);
    StorePiece<U>(lane, to, count, first, LoadAt<Piece<U>>(tile + first, 0));
  }
}

// By a block.
template <class U, SimtLane L>
SPCCL_DEVICE void ClearTile(L& lane, U* tile) {
  constexpr uint32_t kVectors = kTile * sizeof(U) / sizeof(Vec16);
  for (uint32_t i = lane.Thread(); i < kVectors; i += kBlockLanes) {
    StoreAt<Vec16>(tile, i, Vec16{});
  }
}

// A block a tile: scatters the tile's values into zeros in shared memory.
template <class U>
struct DecodeCoo {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {
    alignas(16) U tile[kTile];
    uint64_t ends[2];
  };
  struct Params {
    ConstCooFrame from;
    uint64_t elements;
    void* dense;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    const uint64_t first = uint64_t{lane.Block()} * kTile;
    const void* const indices = At(params.from.frame, params.from.index_offset);
    if (lane.Warp() < 2) {
      const uint64_t end = LowerBound(lane, indices, params.from.nnz, first + lane.Warp() * kTile);
      if (lane.Lane() == 0) shared.ends[lane.Warp()] = end;
    }
    ClearTile(lane, shared.tile);
    lane.SyncThreads();
    const void* const values = At(params.from.frame, params.from.values_offset);
    for (uint64_t i = shared.ends[0] + lane.Thread(); i < shared.ends[1]; i += kBlockLanes) {
      shared.tile[LoadAt<uint32_t>(indices, i) - first] = LoadAt<U>(values, i);
    }
    lane.SyncThreads();
    StoreTile(lane, shared.tile, CountOf(params.elements, lane.Block()),
              At(params.dense, first * sizeof(U)));
  }
};

// Any number of blocks; a lane a value. T, R: as in reduce-inl.h.
template <class T, class R>
struct ReduceCoo {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    ConstCooFrame from;
    void* accumulator;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const void* const indices = At(params.from.frame, params.from.index_offset);
    const void* const values = At(params.from.frame, params.from.values_offset);
    const uint64_t lanes = uint64_t{lane.Blocks()} * kBlockLanes;
    uint64_t i = uint64_t{lane.Block()} * kBlockLanes + lane.Thread();
    for (; i < params.from.nnz; i += lanes) {
      const uint32_t at = LoadAt<uint32_t>(indices, i);
      StoreAt<R>(params.accumulator, at,
                 Sum<R, T>(LoadAt<R>(params.accumulator, at), LoadAt<T>(values, i)));
    }
  }
};

}  // namespace spccl::sparse
