// Bodies of the gap format: positions as Elias and Fano keep a rising sequence. A position's bucket
// is told by where its one lies in the bitmap, its place in the bucket by its low bits.
#pragma once

#include "kernels/host/codec_reduce-inl.h"

namespace spccl::host {
namespace {

// Ones go to bit bucket + rank, low bits behind one another, both through a register.
template <class S>
void PackGap(const uint8_t* indices, uint64_t nnz, const GapSections& out) {
  const uint32_t shift = out.shift;
  const uint64_t mask = (uint64_t{1} << shift) - 1;
  uint64_t ones = 0, word = 0;
  uint64_t fields = 0, filled = 0;
  uint64_t next_tile = 0;
  uint8_t* low = out.low;
  for (uint64_t i = 0; i < nnz; ++i) {
    const uint64_t position = Load<uint32_t>(indices + 4 * i);
    const uint64_t bucket = position >> shift;
    for (; next_tile * 64 <= bucket; ++next_tile) {
      Store(out.index + 4 * next_tile, static_cast<uint32_t>(i));
    }
    const uint64_t at = bucket + i;
    if (at / 64 != word) {
      Store(out.bitmap + 8 * word, ones);
      ones = 0;
      word = at / 64;
    }
    ones |= uint64_t{1} << (at % 64);
    const uint64_t field = position & mask;
    fields |= field << filled;
    filled += shift;
    if (filled >= 64) {
      Store(low, fields);
      low += 8;
      filled -= 64;
      fields = field >> (shift - filled);
    }
  }
  if (nnz != 0) Store(out.bitmap + 8 * word, ones);
  if (filled != 0) Store(low, fields);
  for (; next_tile < out.tiles; ++next_tile) {
    Store(out.index + 4 * next_tile, static_cast<uint32_t>(nnz));
  }
}

// Unpacks positions in order, a tile of 4,096 elements at a time.
template <class S>
struct GapReader {
  // What a tile may hold, and what the bitmap words before it and at its end may have given beyond.
  static constexpr uint64_t kRoom = kTileElements + 2 * kWordElements;

  const uint8_t* bitmap;
  const uint8_t* low;
  uint64_t left;  // positions not unpacked yet
  uint32_t shift;
  uint64_t rank = 0;   // positions unpacked
  uint64_t base = 0;   // of the next bitmap word: its first bit
  uint64_t begin = 0;  // unpacked and not used: places[begin, end)
  uint64_t end = 0;
  alignas(64) uint8_t places[kRoom * sizeof(uint32_t) + 4 * kSlackBytes];

  SPCCL_INLINE explicit GapReader(const ConstGapSections& in)
      : bitmap(in.bitmap), low(in.low), left(in.nnz), shift(in.shift) {}

  SPCCL_INLINE uint64_t Place(uint64_t i) const { return Load<uint32_t>(places + 4 * i); }

  // Unpacks the positions of one bitmap word. A validated frame has as many as it says, so that
  // words are read only while there is one more to come.
  SPCCL_INLINE void UnpackWord() {
    uint8_t* const first = places + 4 * end;
    // Bit minus rank is the bucket; the sum wraps to it.
    const uint8_t* const stop = S::AppendPositions(Load<uint64_t>(bitmap + base / 8),
                                                   static_cast<uint32_t>(base - rank), first);
    const uint64_t count = static_cast<uint64_t>(stop - first) / 4;
    const uint32_t mask = (uint32_t{1} << shift) - 1;
    uint64_t bit = rank * shift;
    for (uint64_t k = 0; k < count; ++k, bit += shift) {
      const uint32_t bucket = Load<uint32_t>(first + 4 * k) - static_cast<uint32_t>(k);
      const auto field = static_cast<uint32_t>(Load<uint64_t>(low + bit / 8) >> (bit % 8));
      Store(first + 4 * k, bucket << shift | (field & mask));
    }
    base += 64;
    rank += count;
    left -= count;
    end += count;
  }

  // Unpacks all positions below `limit`, which is one tile after the last limit: afterwards they
  // are places[begin, the result), and the caller moves `begin` there.
  SPCCL_INLINE uint64_t Fill(uint64_t limit) {
    if (begin != 0) {  // what is left over is of one word
      for (uint64_t i = begin; i < end; ++i) {
        Store(places + 4 * (i - begin), static_cast<uint32_t>(Place(i)));
      }
      end -= begin;
      begin = 0;
    }
    while (left != 0 && (end == 0 || Place(end - 1) < limit)) UnpackWord();
    uint64_t stop = end;
    while (stop != 0 && Place(stop - 1) >= limit) --stop;
    return stop;
  }
};

// The bitmap of a tile from its positions.
template <class S>
SPCCL_INLINE void SetBits(const GapReader<S>& reader, uint64_t stop, uint64_t* words) {
  __builtin_memset(words, 0, kTileWordCount * sizeof(uint64_t));
  for (uint64_t i = reader.begin; i < stop; ++i) {
    const uint64_t place = reader.Place(i) % kTileElements;
    words[place / kWordElements] |= uint64_t{1} << (place % kWordElements);
  }
}

// Few values are scattered into zeros that are in the cache, written out once, and cleared again;
// of many, the tile's bitmap is made.
template <class S, class U>
void DecodeGap(const ConstGapSections& in, uint64_t elements, uint8_t* dense, bool streaming) {
  alignas(64) uint64_t words[kTileWordCount];
  TileScratch<U> zeros{};
  GapReader<S> reader(in);
  const uint8_t* values = in.values;
  const uint8_t* values_end = in.values + in.nnz * sizeof(U);
  const bool direct = CanStreamTo<S, U>(dense);
  for (uint64_t first = 0; first < elements; first += kTileElements) {
    const uint64_t count = Smaller(elements - first, kTileElements);
    const uint64_t stop = reader.Fill(first + kTileElements);
    uint8_t* to = dense + first * sizeof(U);
    if (stop - reader.begin < kSparseTileNonzeros) {
      for (uint64_t i = reader.begin; i < stop; ++i, values += sizeof(U)) {
        Store(zeros.bytes + (reader.Place(i) - first) * sizeof(U), Load<U>(values));
      }
      CopyOut<S>(zeros.bytes, to, count * sizeof(U), streaming);
      for (uint64_t i = reader.begin; i < stop; ++i) {
        Store(zeros.bytes + (reader.Place(i) - first) * sizeof(U), U{0});
      }
    } else {
      SetBits(reader, stop, words);
      values = DecodeTile<S, U>(reinterpret_cast<const uint8_t*>(words), count, values, values_end,
                                to, streaming, direct);
    }
    reader.begin = stop;
  }
  if (streaming) S::Fence();
}

template <class S, class T, class R, class A>
void ReduceGapAs(const ConstGapSections& in, uint64_t elements, uint8_t* accumulator) {
  alignas(64) uint64_t words[kTileWordCount];
  GapReader<S> reader(in);
  const uint8_t* values = in.values;
  const uint8_t* values_end = in.values + in.nnz * sizeof(T);
  for (uint64_t first = 0; first < elements; first += kTileElements) {
    const uint64_t stop = reader.Fill(first + kTileElements);
    const uint64_t count = stop - reader.begin;
    if (count < kSparseTileNonzeros || elements - first < kTileElements) {
      AddScattered<S, T, R, A>(
          Scattered<R, false>{reader.places + 4 * reader.begin, count, accumulator}, values);
    } else {
      SetBits(reader, stop, words);
      AddDenseTile<S, T, R, A>(reinterpret_cast<const uint8_t*>(words), values, values_end,
                               accumulator + first * sizeof(R));
    }
    values += count * sizeof(T);
    reader.begin = stop;
  }
}

template <class S>
void ReduceGap(const ConstGapSections& in, DType dtype, bool wide, uint64_t elements,
               uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceGapAs, in, elements, accumulator)
}

}  // namespace
}  // namespace spccl::host
