// gap: positions as Elias and Fano keep a rising sequence (docs/wire.md, docs/adr/0009-gap.md).
// Encoding collects indices and values (coo-inl.h), clears the bit sections, then packs.
#pragma once

#include "kernels/sparse/coo-inl.h"

namespace spccl::sparse {

struct GapPackParams {
  FrameFacts facts;
  const uint64_t* found;
  const void* indices;  // `found` of them, rising
  const void* values;   // aligned to 16
  uint8_t* frame;
};

// Zeros from the end of the index to the values. Any number of blocks.
struct ClearGap {
  static constexpr uint32_t kThreads = kBlockLanes;
  struct Shared {};
  using Params = GapPackParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const uint64_t nnz = *params.found;
    const uint64_t elements = params.facts.elements;
    const FrameLayout layout = LayoutOf(Format::kGap, params.facts.element_bytes, elements, nnz);
    const uint64_t lanes = uint64_t{lane.Blocks()} * kBlockLanes;
    const uint64_t own = uint64_t{lane.Block()} * kBlockLanes + lane.Thread();
    for (uint64_t at = layout.bitmap + own * 16; at < layout.values; at += lanes * 16) {
      lane.Store16(At(params.frame, at), Vec16{});
    }
    if (lane.Block() != 0 || lane.Warp() != 0) return;
    const uint64_t index_end = layout.index + GapShapeOf(elements, nnz).tiles * sizeof(uint32_t);
    ZeroPadding(lane, params.frame, index_end, layout.bitmap);
    WriteHeader(lane, params.facts, layout, nnz, params.frame);
  }
};

// Sets the ones, packs the low bits, makes the index and moves the values, after ClearGap. Any
// number of blocks; a block packs 1,024 values at a time, whose low bits are whole words of 32
// bits.
struct PackGap {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kRun = 4 * kBlockLanes;
  struct Shared {
    uint32_t low[kRun / 32 * kMaxGapShift];
  };
  using Params = GapPackParams;

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    const uint64_t nnz = *params.found;
    const GapShape shape = GapShapeOf(params.facts.elements, nnz);
    const FrameLayout layout =
        LayoutOf(Format::kGap, params.facts.element_bytes, params.facts.elements, nnz);
    for (uint64_t begin = uint64_t{lane.Block()} * kRun; begin < nnz;
         begin += uint64_t{lane.Blocks()} * kRun) {
      PackRun(lane, shared, params, layout, shape.shift, begin, nnz);
    }
    WriteIndex(lane, params, layout, shape, nnz);
    CopyBytes(lane, params.values, At(params.frame, layout.values),
              nnz * params.facts.element_bytes);
  }

 private:
  template <SimtLane L>
  static SPCCL_DEVICE void PackRun(L& lane, Shared& shared, const Params& params,
                                   const FrameLayout& layout, uint32_t shift, uint64_t begin,
                                   uint64_t nnz) {
    const uint32_t count = static_cast<uint32_t>(Smaller(nnz - begin, kRun));
    const uint32_t words = (count * shift + 31) / 32;
    for (uint32_t w = lane.Thread(); w < words; w += kBlockLanes) shared.low[w] = 0;
    lane.SyncThreads();
    for (uint32_t base = 0; base < count; base += kBlockLanes) {
      const uint32_t i = base + lane.Thread();
      const uint32_t position = i < count ? LoadAt<uint32_t>(params.indices, begin + i) : 0;
      SetOnes(lane, At(params.frame, layout.bitmap), (position >> shift) + begin + i, i < count);
      if (i < count && shift != 0) {
        const uint32_t bit = i * shift;
        const uint64_t field = static_cast<uint64_t>(position & BitsBelow(shift)) << bit % 32;
        lane.FetchOr(&shared.low[bit / 32], static_cast<uint32_t>(field));
        if (field >> 32 != 0) {
          lane.FetchOr(&shared.low[bit / 32 + 1], static_cast<uint32_t>(field >> 32));
        }
      }
    }
    lane.SyncThreads();
    void* const to = At(params.frame, layout.low + begin * shift / 8);
    for (uint32_t w = lane.Thread(); w < words; w += kBlockLanes) {
      StoreAt<uint32_t>(to, w, shared.low[w]);
    }
    lane.SyncThreads();
  }

  // By a warp: sets bit `bit` for each lane that `has` one; bits rise with the lanes. Lanes that
  // meet in a word add up, so that each word is asked for once.
  template <SimtLane L>
  static SPCCL_DEVICE void SetOnes(L& lane, void* bitmap, uint64_t bit, bool has) {
    const uint32_t word = has ? static_cast<uint32_t>(bit / 32) : ~0u;
    uint32_t ones = has ? 1u << bit % 32 : 0;
    SPCCL_UNROLL
    for (uint32_t d = 1; d < kWarpLanes; d *= 2) {
      const uint32_t above_word = lane.ShuffleDown(kAllLanes, word, d);
      const uint32_t above = lane.ShuffleDown(kAllLanes, ones, d);
      if (lane.Lane() + d < kWarpLanes && above_word == word) ones |= above;
    }
    const uint32_t below_word = lane.ShuffleUp(kAllLanes, word, 1);
    if (has && (lane.Lane() == 0 || below_word != word)) {
      lane.FetchOr(reinterpret_cast<uint32_t*>(bitmap) + word, ones);
    }
  }

  // index[t]: how many values lie before bucket 64 t. A lane an entry.
  template <SimtLane L>
  static SPCCL_DEVICE void WriteIndex(L& lane, const Params& params, const FrameLayout& layout,
                                      const GapShape& shape, uint64_t nnz) {
    const uint64_t lanes = uint64_t{lane.Blocks()} * kBlockLanes;
    uint64_t tile = uint64_t{lane.Block()} * kBlockLanes + lane.Thread();
    for (; tile < shape.tiles; tile += lanes) {
      const uint64_t key = tile * kGapTileBuckets << shape.shift;
      uint64_t low = 0;
      for (uint64_t left = nnz; left != 0;) {
        const uint64_t half = left / 2;
        const bool below = LoadAt<uint32_t>(params.indices, low + half) < key;
        low = below ? low + half + 1 : low;
        left = below ? left - half - 1 : half;
      }
      StoreAt<uint32_t>(At(params.frame, layout.index), tile, static_cast<uint32_t>(low));
    }
  }
};

struct ConstGapFrame {
  const uint8_t* frame;
  uint32_t index_offset;
  uint32_t bitmap_offset;
  uint32_t low_offset;
  uint32_t values_offset;
  uint32_t shift;
  uint32_t tiles;
  uint64_t buckets;
  uint64_t nnz;
};

// `count` <= 32 bits from bit `bit` of a section that begins on a multiple of 4. Reads the word
// behind only where the bits reach into it.
SPCCL_DEVICE uint32_t BitsAt(const void* section, uint64_t bit, uint32_t count) {
  const uint32_t past = bit % 32;
  uint64_t word = LoadAt<uint32_t>(section, bit / 32);
  if (past + count > 32) {
    word |= static_cast<uint64_t>(LoadAt<uint32_t>(section, bit / 32 + 1)) << 32;
  }
  return static_cast<uint32_t>(word >> past) & (count >= 32 ? ~0u : BitsBelow(count));
}

// A stretch of the bitmap: bits [bit, end), of which the first one is of the value `rank`.
struct GapStretch {
  uint64_t bit;
  uint64_t end;
  uint64_t rank;
};

// The stretch of tiles [first, last].
SPCCL_DEVICE GapStretch StretchOf(const ConstGapFrame& from, uint64_t first, uint64_t last) {
  const void* const index = At(from.frame, from.index_offset);
  const uint64_t rank = LoadAt<uint32_t>(index, first);
  const uint64_t end = last + 1 < from.tiles
                           ? LoadAt<uint32_t>(index, last + 1) + (last + 1) * kGapTileBuckets
                           : from.nnz + from.buckets;
  return {rank + first * kGapTileBuckets, end, rank};
}

// Calls use(rank, position) for each one of `bits`, which begin at bit `bit`; the first is of
// `rank`.
template <class Use>
SPCCL_DEVICE void ForEachPosition(const ConstGapFrame& from, uint32_t bits, uint64_t bit,
                                  uint64_t rank, Use use) {
  for (; bits != 0; bits &= bits - 1, ++rank) {
    const uint64_t bucket = bit + LowestBit(bits) - rank;
    const uint32_t low =
        from.shift == 0 ? 0
                        : BitsAt(At(from.frame, from.low_offset), rank * from.shift, from.shift);
    use(rank, bucket << from.shift | low);
  }
}

// What a lane takes of the bitmap at a time: few ones, so that lanes are done together.
inline constexpr uint32_t kGapLaneBits = 8;

SPCCL_DEVICE uint32_t LaneBits(const ConstGapFrame& from, uint64_t bit, uint64_t end) {
  if (bit >= end) return 0;
  const uint32_t count = static_cast<uint32_t>(Smaller(end - bit, kGapLaneBits));
  return BitsAt(At(from.frame, from.bitmap_offset), bit, count);
}

// A block 4,096 elements of the output, from all gap tiles that reach into them.
template <class U>
struct DecodeGap {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kWarps = kBlockLanes / kWarpLanes;
  struct Shared {
    alignas(16) U tile[kTile];
    uint32_t ones[kWarps];
  };
  struct Params {
    ConstGapFrame from;
    uint64_t elements;
    void* dense;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared& shared, const Params& params) {
    const ConstGapFrame& from = params.from;
    const uint64_t first = uint64_t{lane.Block()} * kTile;
    const uint32_t count = CountOf(params.elements, lane.Block());
    const uint64_t first_tile = (first >> from.shift) / kGapTileBuckets;
    const uint64_t last_tile = ((first + count - 1) >> from.shift) / kGapTileBuckets;
    GapStretch stretch = StretchOf(from, first_tile, last_tile);
    ClearTile(lane, shared.tile);
    for (; stretch.bit < stretch.end; stretch.bit += kBlockLanes * kGapLaneBits) {
      const uint64_t bit = stretch.bit + lane.Thread() * kGapLaneBits;
      const uint32_t bits = LaneBits(from, bit, stretch.end);
      uint32_t warp_ones;
      uint32_t before = ScanWarp(lane, BitCount(bits), warp_ones);
      if (lane.Lane() == 0) shared.ones[lane.Warp()] = warp_ones;
      lane.SyncThreads();  // and, the first time round, the tile is clear
      uint32_t all = 0;
      SPCCL_UNROLL
      for (uint32_t w = 0; w < kWarps; ++w) {
        if (w < lane.Warp()) before += shared.ones[w];
        all += shared.ones[w];
      }
      ForEachPosition(
          from, bits, bit, stretch.rank + before, [&](uint64_t rank, uint64_t position) {
            // The tiles at both ends may reach past the block's elements.
            if (position - first < count) {
              shared.tile[position - first] = LoadAt<U>(At(from.frame, from.values_offset), rank);
            }
          });
      stretch.rank += all;
      lane.SyncThreads();  // before the counts are written again, and the tile is read
    }
    StoreTile(lane, shared.tile, count, At(params.dense, first * sizeof(U)));
  }
};

// A warp a gap tile at a time; any number of blocks. T, R: as in reduce-inl.h.
template <class T, class R>
struct ReduceGap {
  static constexpr uint32_t kThreads = kBlockLanes;
  static constexpr uint32_t kTilesPerBlock = kBlockLanes / kWarpLanes;
  struct Shared {};
  struct Params {
    ConstGapFrame from;
    void* accumulator;
  };

  template <SimtLane L>
  static SPCCL_DEVICE void Run(L& lane, Shared&, const Params& params) {
    const ConstGapFrame& from = params.from;
    uint64_t tile = uint64_t{lane.Block()} * kTilesPerBlock + lane.Warp();
    for (; tile < from.tiles; tile += uint64_t{lane.Blocks()} * kTilesPerBlock) {
      GapStretch stretch = StretchOf(from, tile, tile);
      for (; stretch.bit < stretch.end; stretch.bit += kWarpLanes * kGapLaneBits) {
        const uint64_t bit = stretch.bit + lane.Lane() * kGapLaneBits;
        const uint32_t bits = LaneBits(from, bit, stretch.end);
        uint32_t ones;
        const uint32_t before = ScanWarp(lane, BitCount(bits), ones);
        ForEachPosition(from, bits, bit, stretch.rank + before,
                        [&](uint64_t rank, uint64_t position) {
                          const T value = LoadAt<T>(At(from.frame, from.values_offset), rank);
                          const R old = LoadAt<R>(params.accumulator, position);
                          StoreAt<R>(params.accumulator, position, Sum<R, T>(old, value));
                        });
        stretch.rank += ones;
      }
    }
  }
};

}  // namespace spccl::sparse
