// Finds every lie that a frame's body can tell, as Validate() of kernels/host/codec.h does:
// afterwards the other kernels may read the frame. The header is the host's to check: it is what
// `info` of device_codec.h comes from, and where all sections lie follows from it.
//
// Each kernel sets *faults to 1 if it finds anything, and leaves it alone otherwise. It reads
// nothing outside the sections, whatever they hold.
#pragma once

#include "kernels/sparse/gap-inl.h"

namespace spccl::sparse {

template <SimtLane L>
SPCCL_DEVICE void TellFault(L& lane, uint32_t* faults, bool fault) {
  if (fault) lane.FetchOr(faults, 1);
}

// By a warp: whether the bytes [from, to) are zeros, less than 32 of them.
template <SimtLane L>
SPCCL_DEVICE bool PaddingIsZero(L& lane, const void* frame, uint64_t from, uint64_t to) {
  const uint64_t at = from + lane.Lane();
  return lane.Ballot(kAllLanes, at < to && LoadAt<uint8_t>(frame, at) != 0) == 0;
}

// pici and pici-column: a warp a tile. That index entries differ by the ones between them makes
// them prefix sums, as the first is zero and what follows the last is nnz.
struct ValidatePici {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kBlockLanes / kWarpLanes;
  struct Shared {};
  struct Params {
    ConstPiciFrame from;
    uint64_t elements;
    uint64_t nnz;
    bool column;
    uint32_t* faults;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint32_t tile = lane.Block() * kTilesPerBlock + lane.Warp();
    const uint32_t tiles = TileOf(params.elements);
    if (tile >= tiles) return;
    const uint8_t* const frame = params.from.frame;
    const void* const index = At(frame, params.from.index_offset);
    const uint64_t at = sizeof(FrameHeader) + uint64_t{tile} * kTileBitmapBytes;
    const Vec16 quad = lane.Load16Once(At(frame, at + lane.Lane() * sizeof(Vec16)));
    uint32_t ones = 0;
    uint32_t beyond = 0;
    SPCCL_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      ones += BitCount(quad.word[i]);
      beyond |=
          quad.word[i] & ~Allowed(params, CountOf(params.elements, tile), 4 * lane.Lane() + i);
    }
    uint32_t total;
    ScanWarp(lane, ones, total);
    const uint64_t begin = LoadAt<uint32_t>(index, tile);
    const uint64_t end = tile + 1 < tiles ? LoadAt<uint32_t>(index, tile + 1) : params.nnz;
    bool fault = beyond != 0 || begin + total != end || (tile == 0 && begin != 0);
    if (tile + 1 == tiles) {
      const uint64_t index_end = params.from.index_offset + uint64_t{tiles} * sizeof(uint32_t);
      fault |= !PaddingIsZero(lane, frame, index_end, params.from.values_offset);
    }
    TellFault(lane, params.faults, fault);
  }

 private:
  // The bits that half-word `half` of a tile of `count` elements may have.
  static SPCCL_DEVICE uint32_t Allowed(const Params& params, uint32_t count, uint32_t half) {
    if (count == kTile) return ~0u;
    uint32_t bits;  // so many of the word's 64, from the lowest
    if (params.column) {
      const uint32_t column = half / 2;
      bits = count > column ? (count - column + 63) / 64 : 0;
    } else {
      const uint32_t first = half / 2 * 64;
      bits = count > first ? count - first : 0;
    }
    const uint32_t skipped = half % 2 * 32;
    bits = bits > skipped ? bits - skipped : 0;
    return bits >= 32 ? ~0u : BitsBelow(bits);
  }
};

// Any number of blocks; a lane an index.
struct ValidateCoo {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  struct Params {
    ConstCooFrame from;
    uint64_t elements;
    uint32_t* faults;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const ConstCooFrame& from = params.from;
    const void* const indices = At(from.frame, from.index_offset);
    const uint64_t lanes = uint64_t{lane.Blocks()} * kBlockLanes;
    bool fault = false;
    for (uint64_t i = uint64_t{lane.Block()} * kBlockLanes + lane.Thread(); i < from.nnz;
         i += lanes) {
      const uint32_t index = LoadAt<uint32_t>(indices, i);
      fault |= index >= params.elements || (i != 0 && LoadAt<uint32_t>(indices, i - 1) >= index);
    }
    if (lane.Block() == 0 && lane.Warp() == 0) {
      fault |= !PaddingIsZero(lane, from.frame, from.index_offset + from.nnz * sizeof(uint32_t),
                              from.values_offset);
    }
    TellFault(lane, params.faults, fault);
  }
};

// A warp a gap tile at a time; any number of blocks.
struct ValidateGap {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kBlockLanes / kWarpLanes;
  struct Shared {};
  struct Params {
    ConstGapFrame from;
    uint64_t elements;
    uint32_t* faults;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    uint64_t tile = uint64_t{lane.Block()} * kTilesPerBlock + lane.Warp();
    bool fault = false;
    for (; tile < params.from.tiles; tile += uint64_t{lane.Blocks()} * kTilesPerBlock) {
      fault |= !TileIsSound(lane, params, tile);
    }
    if (lane.Block() == 0 && lane.Warp() == 0) fault |= !PaddingIsSound(lane, params.from);
    TellFault(lane, params.faults, fault);
  }

 private:
  // The tile has as many ones as its index entries say and ends with a zero, and its positions
  // rise.
  template <SimtLane L>
  static SPCCL_DEVICE bool TileIsSound(L& lane, const Params& params, uint64_t tile) {
    const ConstGapFrame& from = params.from;
    const void* const index = At(from.frame, from.index_offset);
    const uint64_t begin = LoadAt<uint32_t>(index, tile);
    const uint64_t end = tile + 1 < from.tiles ? LoadAt<uint32_t>(index, tile + 1) : from.nnz;
    // Otherwise the stretch could be anywhere.
    if (begin > end || end > from.nnz || (tile == 0 && begin != 0)) return false;
    GapStretch stretch = StretchOf(from, tile, tile);
    const void* const bitmap = At(from.frame, from.bitmap_offset);
    bool sound = BitsAt(bitmap, stretch.end - 1, 1) == 0;
    for (; stretch.bit < stretch.end; stretch.bit += kWarpLanes * kGapLaneBits) {
      const uint64_t bit = stretch.bit + lane.Lane() * kGapLaneBits;
      const uint32_t bits = LaneBits(from, bit, stretch.end);
      uint32_t ones;
      const uint64_t rank = stretch.rank + ScanWarp(lane, BitCount(bits), ones);
      stretch.rank += ones;
      if (stretch.rank > end)
        return false;  // low bits of more values than there are; all lanes alike
      sound &= PositionsRise(params, bits, bit, rank);
    }
    return sound && stretch.rank == end;
  }

  // A one behind a zero is of a later bucket than the one before it; behind a one, of the same.
  static SPCCL_DEVICE bool PositionsRise(const Params& params, uint32_t bits, uint64_t bit,
                                         uint64_t rank) {
    const ConstGapFrame& from = params.from;
    bool rise = true;
    ForEachPosition(from, bits, bit, rank, [&](uint64_t r, uint64_t position) {
      const uint64_t at = (position >> from.shift) + r;  // where its one is
      rise &= position < params.elements;
      if (r == 0 || BitsAt(At(from.frame, from.bitmap_offset), at - 1, 1) == 0) return;
      const void* const low = At(from.frame, from.low_offset);
      rise &= from.shift != 0 && BitsAt(low, (r - 1) * from.shift, from.shift) <
                                     BitsAt(low, r * from.shift, from.shift);
    });
    return rise;
  }

  // By a warp: what is not used of the sections is zero.
  template <SimtLane L>
  static SPCCL_DEVICE bool PaddingIsSound(L& lane, const ConstGapFrame& from) {
    const uint64_t index_end = from.index_offset + uint64_t{from.tiles} * sizeof(uint32_t);
    const bool index = PaddingIsZero(lane, from.frame, index_end, from.bitmap_offset);
    const bool bitmap =
        RestIsZero(lane, from, from.bitmap_offset, from.nnz + from.buckets, from.low_offset);
    const bool low =
        RestIsZero(lane, from, from.low_offset, from.nnz * from.shift, from.values_offset);
    return index && bitmap && low;
  }

  // From bit `bits` of the section at `begin` to the byte `end`.
  template <SimtLane L>
  static SPCCL_DEVICE bool RestIsZero(L& lane, const ConstGapFrame& from, uint64_t begin,
                                      uint64_t bits, uint64_t end) {
    const uint32_t used = bits % 8;
    const bool started = used == 0 || LoadAt<uint8_t>(At(from.frame, begin), bits / 8) >> used == 0;
    return PaddingIsZero(lane, from.frame, begin + (bits + 7) / 8, end) && started;
  }
};

}  // namespace spccl::sparse
