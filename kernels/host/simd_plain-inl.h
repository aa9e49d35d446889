// The plain target: no instruction beyond the compiler's baseline. Also the description of what a
// target must offer.
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

// A target is a struct with:
//   kBytes             bytes of a vector
//   EncodeWord<U>      word of 64 elements: bit b set where (element b & magnitude) != 0; appends
//                      those elements to `out`, writing at most kSlackBytes past the last
//   NonzeroWord<U>     the word alone
//   ExpandWord<U, kStream>  writes 64 elements to `dense`: the next value where the word has a bit,
//                      zero elsewhere; may read kSlackBytes past the last value; returns past the
//                      last; kStream: with non-temporal stores, `dense` is 64-byte aligned
//   kStreamsWords<U>   whether ExpandWord heeds kStream
//   AddWord<T>         where kAddsWords<T>: adds the next value to each of 64 elements of type T
//                      whose bit is set, leaves the others; reads and returns as ExpandWord
//   AppendPositions    appends base + b as u32 for each set bit b; writes at most kSlackBytes past
//   WidenHalf, NarrowHalf, WidenBrain, NarrowBrain  float16, bfloat16 <-> a vector of float32
//   StreamStore, Fence     non-temporal store to an aligned address, and what orders those stores
struct Plain {
  static constexpr size_t kBytes = 16;
  template <class U>
  static constexpr bool kStreamsWords = false;
  template <class T>
  static constexpr bool kAddsWords = false;
  static constexpr bool kStreams = false;

  template <class U>
  static SPCCL_INLINE uint64_t NonzeroWord(const uint8_t* dense, U magnitude) {
    uint64_t word = 0;
    for (size_t b = 0; b < kWordElements; ++b) {
      word |= static_cast<uint64_t>((Load<U>(dense + b * sizeof(U)) & magnitude) != 0) << b;
    }
    return word;
  }

  template <class U>
  static SPCCL_INLINE uint64_t EncodeWord(const uint8_t* dense, U magnitude, uint8_t*& out) {
    const uint64_t word = NonzeroWord<U>(dense, magnitude);
    for (uint64_t rest = word; rest != 0; rest &= rest - 1) {
      Store(out, Load<U>(dense + static_cast<size_t>(std::countr_zero(rest)) * sizeof(U)));
      out += sizeof(U);
    }
    return word;
  }

  template <class U, bool kStream>
  static SPCCL_INLINE const uint8_t* ExpandWord(const uint8_t* values, uint64_t word,
                                                uint8_t* dense) {
    __builtin_memset(dense, 0, kWordElements * sizeof(U));
    for (; word != 0; word &= word - 1) {
      Store(dense + static_cast<size_t>(std::countr_zero(word)) * sizeof(U), Load<U>(values));
      values += sizeof(U);
    }
    return values;
  }

  static SPCCL_INLINE uint8_t* AppendPositions(uint64_t word, uint32_t base, uint8_t* out) {
    for (; word != 0; word &= word - 1) {
      Store(out, base + static_cast<uint32_t>(std::countr_zero(word)));
      out += sizeof(uint32_t);
    }
    return out;
  }

  static SPCCL_INLINE Vec<Plain, float> WidenHalf(const uint8_t* from) {
    Vec<Plain, float> wide;
    for (size_t i = 0; i < 4; ++i) wide[i] = Float16ToFloat(Load<uint16_t>(from + 2 * i));
    return wide;
  }

  static SPCCL_INLINE void NarrowHalf(const Vec<Plain, float>& wide, uint8_t* to) {
    for (size_t i = 0; i < 4; ++i) Store(to + 2 * i, FloatToFloat16(wide[i]));
  }

  static SPCCL_INLINE Vec<Plain, float> WidenBrain(const uint8_t* from) {
    return WidenBrainByVector<Plain>(from);
  }
  static SPCCL_INLINE void NarrowBrain(const Vec<Plain, float>& wide, uint8_t* to) {
    NarrowBrainByVector<Plain>(wide, to);
  }

  template <class V>
  static SPCCL_INLINE void StreamStore(uint8_t* to, const V& value) {
    Store(to, value);
  }
  static SPCCL_INLINE void Fence() {}
};

}  // namespace
}  // namespace spccl::host
