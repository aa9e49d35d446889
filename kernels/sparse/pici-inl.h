// pici: encode and decode, a tile a block of 256 lanes.
#pragma once

#include "kernels/sparse/header-inl.h"
#include "kernels/sparse/lookback-inl.h"

namespace spccl::sparse {

// Where the sections of a pici frame lie, whatever its nnz.
struct PiciFrame {
  uint8_t* frame;
  FrameFacts facts;
  uint32_t index_offset;
  uint32_t values_offset;
};
struct ConstPiciFrame {
  const uint8_t* frame;
  uint32_t index_offset;
  uint32_t values_offset;
};

SPCCL_DEVICE uint32_t TileOf(uint64_t elements) {
  return static_cast<uint32_t>(TilesOf(elements));
}
// Elements of a tile, fewer in the last one.
SPCCL_DEVICE uint32_t CountOf(uint64_t elements, uint32_t tile) {
  return static_cast<uint32_t>(Smaller(elements - uint64_t{tile} * kTile, kTile));
}

// By a warp: what comes once a frame, when its nnz is known.
template <SimtLane L>
SPCCL_DEVICE void FinishPici(L& lane, const PiciFrame& to, uint64_t nnz) {
  const FrameLayout layout = {sizeof(FrameHeader), to.index_offset, 0, to.values_offset,
                              to.values_offset + nnz * to.facts.element_bytes};
  WriteHeader(lane, to.facts, layout, nnz, to.frame);
  ZeroPadding(lane, to.frame, to.index_offset + TilesOf(to.facts.elements) * sizeof(uint32_t),
              to.values_offset);
}

// What a block keeps of the tile that it encodes: 4 bytes more for what StoreValues() reads.
template <class U>
struct EncodeShared {
  alignas(16) U values[kTile + 4 / sizeof(U) + 1];
  TileBitmap bitmap;
  Turn turn;
  uint32_t count;
  uint32_t base;
};

// By a block. Writes the bitmap of the caller's elements, held as pieces of Map, to shared memory;
// it is there after a SyncThreads(). Zeros are what `magnitude` masks to zero.
template <class Map, class U, SimtLane L>
SPCCL_DEVICE void MarkNonzeros(L& lane, const U (&elements)[kLaneElements], U magnitude,
                               TileBitmap& bitmap) {
  constexpr uint32_t kLanesPerByte = Map::kPiece >= 8 ? 1 : 8 / Map::kPiece;
  SPCCL_UNROLL
  for (uint32_t p = 0; p < Map::kPieces; ++p) {
    uint32_t bits = 0;
    SPCCL_UNROLL
    for (uint32_t k = 0; k < Map::kPiece; ++k) {
      bits |= static_cast<uint32_t>((elements[p * Map::kPiece + k] & magnitude) != 0) << k;
    }
    const uint32_t first = Map::First(lane.Thread(), p);
    if constexpr (Map::kPiece == 16) {
      StoreAt<uint16_t>(bitmap.words, first / 16, static_cast<uint16_t>(bits));
    } else {
      bits <<= first % 8;
      SPCCL_UNROLL
      for (uint32_t d = 1; d < kLanesPerByte; d *= 2) bits |= lane.ShuffleXor(kAllLanes, bits, d);
      if (lane.Lane() % kLanesPerByte == 0) {
        StoreAt<uint8_t>(bitmap.words, first / 8, static_cast<uint8_t>(bits));
      }
    }
  }
}

// By a block: moves the caller's nonzeros to their places among the tile's values.
template <class Map, class U, SimtLane L>
SPCCL_DEVICE void Compact(L& lane, const U (&elements)[kLaneElements], const TileBitmap& bitmap,
                          U* values) {
  SPCCL_UNROLL
  for (uint32_t p = 0; p < Map::kPieces; ++p) {
    const uint32_t first = Map::First(lane.Thread(), p);
    const uint32_t bits = bitmap.Bits(first, Map::kPiece);
    uint32_t rank = bitmap.Rank(first);
    SPCCL_UNROLL
    for (uint32_t k = 0; k < Map::kPiece; ++k) {
      if ((bits >> k & 1) != 0) values[rank++] = elements[p * Map::kPiece + k];
    }
  }
}

// By a block: encodes one tile, whose elements the lanes hold, as the next one of a frame. The last
// tile also writes the header. Shared memory may be used again after a SyncThreads().
template <class Map, class U, SimtLane L>
SPCCL_DEVICE void EncodeTile(L& lane, EncodeShared<U>& shared, const U (&elements)[kLaneElements],
                             U magnitude, const LookBack& look_back, const PiciFrame& to) {
  const Turn turn = shared.turn;
  const uint32_t tiles = TileOf(to.facts.elements);
  MarkNonzeros<Map>(lane, elements, magnitude, shared.bitmap);
  lane.SyncThreads();
  if (lane.Warp() == 0) {
    const Vec16 quad = LoadAt<Vec16>(shared.bitmap.words, lane.Lane());
    const uint32_t count = RankWords(lane, shared.bitmap, quad);
    if (lane.Lane() == 0) {
      PublishCount(lane, look_back, turn, count);  // the tiles after this one wait for it
      shared.count = count;
    }
    const uint64_t at = sizeof(FrameHeader) + uint64_t{turn.tile} * kTileBitmapBytes;
    lane.Store16Once(At(to.frame, at + lane.Lane() * sizeof(Vec16)), quad);
  }
  lane.SyncThreads();
  if (lane.Warp() == 0) {
    const uint32_t count = shared.count;
    const uint32_t base = PrefixBefore(lane, look_back, turn, count);
    if (lane.Lane() == 0) {
      shared.base = base;
      StoreAt<uint32_t>(At(to.frame, to.index_offset), turn.tile, base);
    }
    if (turn.tile + 1 == tiles) FinishPici(lane, to, uint64_t{base} + count);
  }
  Compact<Map>(lane, elements, shared.bitmap, shared.values);
  lane.SyncThreads();
  StoreValues(lane, shared.values, shared.count,
              At(to.frame, to.values_offset + uint64_t{shared.base} * sizeof(U)));
}

// By a block: takes the next tile; every lane has it in shared.turn afterwards.
template <class U, SimtLane L>
SPCCL_DEVICE void TakeTile(L& lane, EncodeShared<U>& shared, const LookBack& look_back) {
  if (lane.Thread() == 0) shared.turn = TakeTurn(lane, look_back, lane.Blocks());
  lane.SyncThreads();
}

// Dense elements of width sizeof(U) to a pici frame, byte for byte the host's. A block a tile, and
// one that writes the header where there is no tile. The frame is aligned to 16 and has room for
// MaxFrameBytes() of the host's codec.h; `dense` is aligned to U, and faster if to 16.
template <class U>
struct EncodePici {
  static constexpr uint32_t kThreads = kBlockLanes;
  using Shared = EncodeShared<U>;
  struct Params {
    const void* dense;
    uint64_t magnitude;
    LookBack look_back;
    PiciFrame to;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    const uint64_t elements_in_all = params.to.facts.elements;
    if (elements_in_all == 0) {
      if (lane.Warp() == 0) FinishPici(lane, params.to, 0);
      return;
    }
    TakeTile(lane, shared, params.look_back);
    const uint32_t tile = shared.turn.tile;
    U elements[kLaneElements];
    LoadTile<U>(lane, At(params.dense, uint64_t{tile} * kTile * sizeof(U)),
                CountOf(elements_in_all, tile), elements);
    EncodeTile<MapOf<U>>(lane, shared, elements, static_cast<U>(params.magnitude), params.look_back,
                         params.to);
  }
};

// By a block: the bitmap of a tile of a frame, ranked, in shared memory; returns where the tile's
// values begin, counted in values.
template <SimtLane L>
SPCCL_DEVICE uint32_t OpenTile(L& lane, const ConstPiciFrame& from, uint32_t tile,
                               TileBitmap& bitmap) {
  if (lane.Warp() == 0) {
    const uint64_t at = sizeof(FrameHeader) + uint64_t{tile} * kTileBitmapBytes;
    LoadBitmap(lane, At(from.frame, at), bitmap);
  }
  const uint32_t base = LoadAt<uint32_t>(At(from.frame, from.index_offset), tile);
  lane.SyncThreads();
  return base;
}

// A valid pici frame to dense elements, zeros included. A block a tile.
template <class U>
struct DecodePici {
  static constexpr uint32_t kThreads = kBlockLanes;
  using Shared = TileBitmap;
  struct Params {
    ConstPiciFrame from;
    uint64_t elements;
    void* dense;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& bitmap, const Params& params) {
    using Map = MapOf<U>;
    const uint32_t tile = lane.Block();
    const uint32_t base = OpenTile(lane, params.from, tile, bitmap);
    const uint8_t* const values =
        At(params.from.frame, params.from.values_offset + uint64_t{base} * sizeof(U));
    void* const to = At(params.dense, uint64_t{tile} * kTile * sizeof(U));
    const uint32_t count = CountOf(params.elements, tile);
    SPCCL_UNROLL
    for (uint32_t p = 0; p < Map::kPieces; ++p) {
      const uint32_t first = Map::First(lane.Thread(), p);
      const uint32_t bits = bitmap.Bits(first, Map::kPiece);
      const uint32_t rank = bitmap.Rank(first);
      Piece<U> piece{};
      SPCCL_UNROLL
      for (uint32_t k = 0; k < Map::kPiece; ++k) {
        if ((bits >> k & 1) != 0) {
          piece.at[k] = LoadAt<U>(values, rank + BitCount(bits & BitsBelow(k)));
        }
      }
      StorePiece<U>(lane, to, count, first, piece);
    }
  }
};

}  // namespace spccl::sparse
