// Bodies of the codecs, one source for every target S (see simd_plain-inl.h for what S offers).
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

inline constexpr uint64_t kTileWordCount = kTileElements / kWordElements;

// Scratch of one tile and of one word, with room for what a hook writes or reads past the end.
template <class U>
struct TileScratch {
  alignas(64) uint8_t bytes[kTileElements * sizeof(U) + kSlackBytes];
};
template <class U>
struct WordScratch {
  alignas(64) uint8_t bytes[kWordElements * sizeof(U) + kSlackBytes];
};

SPCCL_INLINE uint64_t TileCount(uint64_t elements) {
  return (elements + kTileElements - 1) / kTileElements;
}
SPCCL_INLINE uint64_t Smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}
SPCCL_INLINE uint64_t BitCount(uint64_t word) {
  return static_cast<uint64_t>(__builtin_popcountll(word));
}

template <class S, class U>
uint64_t Count(const uint8_t* dense, uint64_t elements, uint64_t magnitude) {
  uint64_t count = 0;
  uint64_t at = 0;
  for (; at + kWordElements <= elements; at += kWordElements) {
    PrefetchAhead<kWordElements * sizeof(U)>(dense + at * sizeof(U));
    count +=
        BitCount(S::template NonzeroWord<U>(dense + at * sizeof(U), static_cast<U>(magnitude)));
  }
  for (; at < elements; ++at) {
    count += (Load<U>(dense + at * sizeof(U)) & static_cast<U>(magnitude)) != 0;
  }
  return count;
}

// The word of the last `elements` < 64 elements. Never reads past them.
template <class S, class U>
uint64_t EncodeTailWord(const uint8_t* dense, uint64_t elements, U magnitude, uint8_t*& out) {
  WordScratch<U> scratch{};
  __builtin_memcpy(scratch.bytes, dense, elements * sizeof(U));
  return S::template EncodeWord<U>(scratch.bytes, magnitude, out);
}

// Encodes the 64 words of one tile of `elements` <= 4,096 elements.
template <class S, class U>
SPCCL_INLINE void EncodeTile(const uint8_t* dense, uint64_t elements, U magnitude, uint8_t* bitmap,
                             uint8_t*& out) {
  uint8_t* values = out;  // in a register: the stores below could alias the reference
  const uint64_t full = elements / kWordElements;
  uint64_t w = 0;
  for (; w < full; ++w) {
    PrefetchAhead<kWordElements * sizeof(U)>(dense + w * kWordElements * sizeof(U));
    Store(bitmap + 8 * w,
          S::template EncodeWord<U>(dense + w * kWordElements * sizeof(U), magnitude, values));
  }
  if (elements % kWordElements != 0) {
    Store(bitmap + 8 * w, EncodeTailWord<S, U>(dense + w * kWordElements * sizeof(U),
                                               elements % kWordElements, magnitude, values));
    ++w;
  }
  for (; w < kTileWordCount; ++w) Store(bitmap + 8 * w, uint64_t{0});
  out = values;
}

// Values of a tile from which on staging them for streaming costs less than it saves.
inline constexpr uint64_t kStagedBytes = 1024;

// Streams values: gathers them in the L1 cache, so that whole lines can be written without being
// read before. A line that is not full waits: stores to it would hold up all those behind them.
template <class S, class U>
struct Stage {
  alignas(64) uint8_t bytes[64 + kTileElements * sizeof(U) + kSlackBytes];
  uint64_t held = 0;

  SPCCL_INLINE void Write(uint8_t*& values, const uint8_t* end) {
    const auto filled = static_cast<uint64_t>(end - bytes);
    const uint64_t past = (reinterpret_cast<uintptr_t>(values) + filled) % 64;
    held = Smaller(past, filled);
    const uint64_t whole = filled - held;
    CopyOut<S>(bytes, values, whole, true);
    __builtin_memmove(bytes, bytes + whole, held);
    values += whole;
  }
  SPCCL_INLINE void Finish(uint8_t*& values) {
    __builtin_memcpy(values, bytes, held);
    values += held;
    held = 0;
  }
};

// How many values a tile will have, the one before tells well enough.
template <class S, class U>
uint64_t EncodePici(const uint8_t* dense, uint64_t elements, uint64_t magnitude,
                    const PiciSections& out) {
  Stage<S, U> stage;
  uint8_t* values = out.values;
  uint64_t last_bytes = 0;
  for (uint64_t tile = 0; tile < TileCount(elements); ++tile) {
    const uint64_t first = tile * kTileElements;
    const bool staged = S::kStreams && out.streaming && last_bytes >= kStagedBytes;
    if (!staged) stage.Finish(values);
    const uint64_t before = static_cast<uint64_t>(values - out.values) + stage.held;
    Store(out.index + 4 * tile, static_cast<uint32_t>(before / sizeof(U)));
    uint8_t* const begin = staged ? stage.bytes + stage.held : values;
    uint8_t* end = begin;
    EncodeTile<S, U>(dense + first * sizeof(U), Smaller(elements - first, kTileElements),
                     static_cast<U>(magnitude), out.bitmap + tile * kTileWordCount * 8, end);
    last_bytes = static_cast<uint64_t>(end - begin);
    if (staged) {
      stage.Write(values, end);
    } else {
      values = end;
    }
  }
  stage.Finish(values);
  if (S::kStreams && out.streaming) S::Fence();
  return static_cast<uint64_t>(values - out.values) / sizeof(U);
}

// The lower (kHigh = 0) or upper half of a and b, element by element in turn.
template <size_t kHigh, class V, size_t... kLane>
SPCCL_INLINE V Interleave(const V& a, const V& b, std::index_sequence<kLane...>) {
  constexpr size_t kCount = sizeof...(kLane);
  return __builtin_shufflevector(a, b, (kHigh * kCount / 2 + kLane / 2 + (kLane % 2) * kCount)...);
}

// Turns a square of vectors: log2(lanes) rounds of interleaving rows half the square apart.
template <class S, class U>
SPCCL_INLINE void TransposeSquare(const uint8_t* from, uint8_t* to) {
  constexpr size_t kSide = kLanes<S, U>;
  constexpr size_t kRowBytes = 64 * sizeof(U);
  using V = Vec<S, U>;
  constexpr auto kIndices = std::make_index_sequence<kSide>();
  V rows[kSide];
  V next[kSide];
#pragma GCC unroll 64
  for (size_t i = 0; i < kSide; ++i) rows[i] = Load<V>(from + i * kRowBytes);
#pragma GCC unroll 8
  for (size_t round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 64
    for (size_t i = 0; i < kSide / 2; ++i) {
      next[2 * i] = Interleave<0>(rows[i], rows[i + kSide / 2], kIndices);
      next[2 * i + 1] = Interleave<1>(rows[i], rows[i + kSide / 2], kIndices);
    }
#pragma GCC unroll 64
    for (size_t i = 0; i < kSide; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 64
  for (size_t i = 0; i < kSide; ++i) Store(to + i * kRowBytes, rows[i]);
}

// A tile as 64 x 64: turns rows into columns. `from` and `to` do not overlap.
template <class S, class U>
void TransposeTile(const uint8_t* from, uint8_t* to) {
  constexpr size_t kSide = kLanes<S, U>;
  for (size_t row = 0; row < 64; row += kSide) {
    for (size_t column = 0; column < 64; column += kSide) {
      TransposeSquare<S, U>(from + (row * 64 + column) * sizeof(U),
                            to + (column * 64 + row) * sizeof(U));
    }
  }
}

// The column words of a tile are the linear words of the transposed tile.
template <class S, class U>
uint64_t EncodeColumn(const uint8_t* dense, uint64_t elements, uint64_t magnitude,
                      const PiciSections& out) {
  TileScratch<U> padded;
  TileScratch<U> turned;
  uint8_t* values = out.values;
  for (uint64_t tile = 0; tile < TileCount(elements); ++tile) {
    const uint64_t first = tile * kTileElements;
    const uint64_t count = Smaller(elements - first, kTileElements);
    const uint8_t* source = dense + first * sizeof(U);
    if (count < kTileElements) {
      __builtin_memset(padded.bytes, 0, sizeof(padded.bytes));
      __builtin_memcpy(padded.bytes, source, count * sizeof(U));
      source = padded.bytes;
    }
    TransposeTile<S, U>(source, turned.bytes);
    Store(out.index + 4 * tile, static_cast<uint32_t>((values - out.values) / sizeof(U)));
    EncodeTile<S, U>(turned.bytes, kTileElements, static_cast<U>(magnitude),
                     out.bitmap + tile * kTileWordCount * 8, values);
  }
  return (values - out.values) / sizeof(U);
}

template <class S, class U>
uint64_t EncodeCoo(const uint8_t* dense, uint64_t elements, uint64_t magnitude, uint8_t* indices,
                   uint8_t* values) {
  const uint8_t* first_value = values;
  uint64_t at = 0;
  for (; at + kWordElements <= elements; at += kWordElements) {
    PrefetchAhead<kWordElements * sizeof(U)>(dense + at * sizeof(U));
    const uint64_t word =
        S::template EncodeWord<U>(dense + at * sizeof(U), static_cast<U>(magnitude), values);
    indices = S::AppendPositions(word, static_cast<uint32_t>(at), indices);
  }
  if (at < elements) {
    const uint64_t word = EncodeTailWord<S, U>(dense + at * sizeof(U), elements - at,
                                               static_cast<U>(magnitude), values);
    indices = S::AppendPositions(word, static_cast<uint32_t>(at), indices);
  }
  return static_cast<uint64_t>(values - first_value) / sizeof(U);
}

// Expands a word whose values may end less than kSlackBytes before the end of readable memory.
template <class S, class U>
const uint8_t* ExpandWordNearEnd(const uint8_t* values, uint64_t word, uint8_t* dense) {
  WordScratch<U> scratch;
  __builtin_memcpy(scratch.bytes, values, BitCount(word) * sizeof(U));
  S::template ExpandWord<U, false>(scratch.bytes, word, dense);
  return values + BitCount(word) * sizeof(U);
}

// Whether a hook may read `count` values and kSlackBytes more.
template <class U>
SPCCL_INLINE bool HasSlack(const uint8_t* values, const uint8_t* values_end, uint64_t count) {
  return static_cast<size_t>(values_end - values) >= count * sizeof(U) + kSlackBytes;
}

// Expands `words` words to 64 elements each at `dense`; returns past the last value used.
template <class S, class U, bool kStream>
SPCCL_INLINE const uint8_t* ExpandWords(const uint8_t* bitmap, uint64_t words,
                                        const uint8_t* values, const uint8_t* values_end,
                                        uint8_t* dense) {
  uint64_t w = 0;
  if (HasSlack<U>(values, values_end, words * kWordElements)) {
    for (; w < words; ++w) {
      values = S::template ExpandWord<U, kStream>(values, Load<uint64_t>(bitmap + 8 * w),
                                                  dense + w * kWordElements * sizeof(U));
    }
  }
  for (; w < words; ++w) {
    const uint64_t word = Load<uint64_t>(bitmap + 8 * w);
    uint8_t* to = dense + w * kWordElements * sizeof(U);
    values = HasSlack<U>(values, values_end, BitCount(word))
                 ? S::template ExpandWord<U, kStream>(values, word, to)
                 : ExpandWordNearEnd<S, U>(values, word, to);
  }
  return values;
}

// Decodes one tile of `count` <= 4,096 elements from its bitmap; returns past the last value used.
// `direct`: the hooks can stream to `dense`.
template <class S, class U>
SPCCL_INLINE const uint8_t* DecodeTile(const uint8_t* bitmap, uint64_t count, const uint8_t* values,
                                       const uint8_t* values_end, uint8_t* dense, bool streaming,
                                       bool direct) {
  if (count == kTileElements && !streaming) {
    return ExpandWords<S, U, false>(bitmap, kTileWordCount, values, values_end, dense);
  }
  if (count == kTileElements && direct) {
    return ExpandWords<S, U, true>(bitmap, kTileWordCount, values, values_end, dense);
  }
  TileScratch<U> scratch;
  values = ExpandWords<S, U, false>(bitmap, kTileWordCount, values, values_end, scratch.bytes);
  CopyOut<S>(scratch.bytes, dense, count * sizeof(U), streaming);
  return values;
}

template <class S, class U>
SPCCL_INLINE bool CanStreamTo(const uint8_t* dense) {
  return S::template kStreamsWords<U> && reinterpret_cast<uintptr_t>(dense) % 64 == 0;
}

template <class S, class U>
void DecodePici(const ConstPiciSections& in, uint64_t elements, uint8_t* dense, bool streaming) {
  const uint8_t* values = in.values;
  const uint8_t* values_end = in.values + in.nnz * sizeof(U);
  const bool direct = CanStreamTo<S, U>(dense);
  for (uint64_t tile = 0; tile < TileCount(elements); ++tile) {
    const uint64_t first = tile * kTileElements;
    values = DecodeTile<S, U>(in.bitmap + tile * kTileWordCount * 8,
                              Smaller(elements - first, kTileElements), values, values_end,
                              dense + first * sizeof(U), streaming, direct);
  }
  if (streaming) S::Fence();
}

template <class S, class U>
void DecodeColumn(const ConstPiciSections& in, uint64_t elements, uint8_t* dense, bool streaming) {
  TileScratch<U> turned;
  TileScratch<U> straight;
  const uint8_t* values = in.values;
  const uint8_t* values_end = in.values + in.nnz * sizeof(U);
  for (uint64_t tile = 0; tile < TileCount(elements); ++tile) {
    const uint64_t first = tile * kTileElements;
    const uint64_t count = Smaller(elements - first, kTileElements);
    values = ExpandWords<S, U, false>(in.bitmap + tile * kTileWordCount * 8, kTileWordCount, values,
                                      values_end, turned.bytes);
    TransposeTile<S, U>(turned.bytes, straight.bytes);
    CopyOut<S>(straight.bytes, dense + first * sizeof(U), count * sizeof(U), streaming);
  }
  if (streaming) S::Fence();
}

// A tile's worth of elements at a time: scattered into zeros that are in the cache, written out
// once, and cleared again.
template <class S, class U>
void DecodeCoo(const uint8_t* indices, const uint8_t* values, uint64_t nnz, uint64_t elements,
               uint8_t* dense, bool streaming) {
  TileScratch<U> scratch{};
  uint64_t next = 0;
  for (uint64_t first = 0; first < elements; first += kTileElements) {
    const uint64_t count = Smaller(elements - first, kTileElements);
    const uint64_t begin = next;
    for (; next < nnz; ++next) {
      const uint64_t at = Load<uint32_t>(indices + 4 * next) - first;
      if (at >= count) break;
      Store(scratch.bytes + at * sizeof(U), Load<U>(values + next * sizeof(U)));
    }
    CopyOut<S>(scratch.bytes, dense + first * sizeof(U), count * sizeof(U), streaming);
    for (uint64_t i = begin; i < next; ++i) {
      Store(scratch.bytes + (Load<uint32_t>(indices + 4 * i) - first) * sizeof(U), U{0});
    }
  }
  if (streaming) S::Fence();
}

}  // namespace
}  // namespace spccl::host
