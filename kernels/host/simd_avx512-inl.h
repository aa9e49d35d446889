// AVX-512 (F, BW, DQ, VL) and, with kVbmi2, VBMI2's compress and expand of 8- and 16-bit lanes.
// Compress goes to a register and is then stored whole: compressing straight to memory is ten times
// slower on some processors.
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

SPCCL_INLINE __m512i LoadZ(const uint8_t* from) {
  return _mm512_loadu_si512(from);
}
SPCCL_INLINE __m256i LoadY(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
SPCCL_INLINE __m128i LoadX(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Zeros that the compiler takes for anything. Some processors let a compress or expand wait for
// what its register held before, also where it zeroes: with these as what it held, it waits for
// nothing.
SPCCL_INLINE __m512i NothingBefore() {
  __m512i zeros = _mm512_setzero_si512();
  asm("" : "+v"(zeros));
  return zeros;
}

// The part of a word that belongs to vector `i` of `kLaneCount` lanes.
template <size_t kLaneCount>
SPCCL_INLINE uint64_t MaskOf(uint64_t word, size_t i) {
  if constexpr (kLaneCount == 64) {
    return word;
  } else {
    return (word >> (i * kLaneCount)) & ((uint64_t{1} << kLaneCount) - 1);
  }
}

template <bool kVbmi2>
struct Avx512 {
  static constexpr size_t kBytes = 64;
  template <class U>
  static constexpr bool kStreamsWords = sizeof(U) > 2 || kVbmi2;
  template <class T>
  static constexpr bool kAddsWords = sizeof(T) >= 4 || kVbmi2;
  static constexpr bool kStreams = true;

  template <class U>
  static SPCCL_INLINE uint64_t NonzeroMask(__m512i v, U magnitude) {
    if constexpr (sizeof(U) == 1) {
      return _mm512_test_epi8_mask(v, _mm512_set1_epi8(static_cast<char>(magnitude)));
    } else if constexpr (sizeof(U) == 2) {
      return _mm512_test_epi16_mask(v, _mm512_set1_epi16(static_cast<int16_t>(magnitude)));
    } else if constexpr (sizeof(U) == 4) {
      return _mm512_test_epi32_mask(v, _mm512_set1_epi32(static_cast<int32_t>(magnitude)));
    } else {
      return _mm512_test_epi64_mask(v, _mm512_set1_epi64(static_cast<int64_t>(magnitude)));
    }
  }

  template <class U>
  static SPCCL_INLINE uint64_t NonzeroWord(const uint8_t* dense, U magnitude) {
    uint64_t word = 0;
    for (size_t i = 0; i < sizeof(U); ++i) {
      word |= NonzeroMask<U>(LoadZ(dense + 64 * i), magnitude) << (i * (64 / sizeof(U)));
    }
    return word;
  }

  // Narrow lanes without VBMI2: 16 of them, compressed as 32-bit lanes.
  template <class U>
  static SPCCL_INLINE uint8_t* CompressWidened(const uint8_t* dense, uint64_t mask, uint8_t* out) {
    const __mmask16 k = static_cast<__mmask16>(mask);
    if constexpr (sizeof(U) == 1) {
      const __m512i wide =
          _mm512_mask_compress_epi32(NothingBefore(), k, _mm512_cvtepu8_epi32(LoadX(dense)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(wide));
    } else {
      const __m512i wide =
          _mm512_mask_compress_epi32(NothingBefore(), k, _mm512_cvtepu16_epi32(LoadY(dense)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(wide));
    }
    return out + static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
  }

  template <class U>
  static SPCCL_INLINE __m512i Compress(__m512i v, uint64_t mask) {
    if constexpr (sizeof(U) == 8) {
      return _mm512_mask_compress_epi64(NothingBefore(), static_cast<__mmask8>(mask), v);
    } else if constexpr (sizeof(U) == 4) {
      return _mm512_mask_compress_epi32(NothingBefore(), static_cast<__mmask16>(mask), v);
    } else if constexpr (sizeof(U) == 2 && kVbmi2) {
      return _mm512_mask_compress_epi16(NothingBefore(), static_cast<__mmask32>(mask), v);
    } else if constexpr (kVbmi2) {
      return _mm512_mask_compress_epi8(NothingBefore(), mask, v);
    }
  }

  template <class U>
  static SPCCL_INLINE uint64_t EncodeWord(const uint8_t* dense, U magnitude, uint8_t*& out) {
    constexpr size_t kCount = 64 / sizeof(U);
    uint64_t word = 0;
    for (size_t i = 0; i < sizeof(U); ++i) {
      const __m512i v = LoadZ(dense + 64 * i);
      const uint64_t mask = NonzeroMask<U>(v, magnitude);
      word |= mask << (i * kCount);
      if constexpr (sizeof(U) >= 4 || kVbmi2) {
        _mm512_storeu_si512(out, Compress<U>(v, mask));
        out += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
      } else {
        for (size_t part = 0; part < kCount / 16; ++part) {
          out = CompressWidened<U>(dense + 64 * i + part * 16 * sizeof(U), MaskOf<16>(mask, part),
                                   out);
        }
      }
    }
    return word;
  }

  template <class U>
  static SPCCL_INLINE __m512i Expand(const uint8_t* values, uint64_t mask) {
    const __m512i v = LoadZ(values);
    if constexpr (sizeof(U) == 8) {
      return _mm512_mask_expand_epi64(NothingBefore(), static_cast<__mmask8>(mask), v);
    } else if constexpr (sizeof(U) == 4) {
      return _mm512_mask_expand_epi32(NothingBefore(), static_cast<__mmask16>(mask), v);
    } else if constexpr (sizeof(U) == 2 && kVbmi2) {
      return _mm512_mask_expand_epi16(NothingBefore(), static_cast<__mmask32>(mask), v);
    } else if constexpr (kVbmi2) {
      return _mm512_mask_expand_epi8(NothingBefore(), mask, v);
    }
  }

  // 16 narrow lanes without VBMI2.
  template <class U>
  static SPCCL_INLINE void ExpandWidened(const uint8_t* values, uint64_t mask, uint8_t* dense) {
    const __mmask16 k = static_cast<__mmask16>(mask);
    if constexpr (sizeof(U) == 1) {
      const __m512i wide =
          _mm512_mask_expand_epi32(NothingBefore(), k, _mm512_cvtepu8_epi32(LoadX(values)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(dense), _mm512_cvtepi32_epi8(wide));
    } else {
      const __m512i wide =
          _mm512_mask_expand_epi32(NothingBefore(), k, _mm512_cvtepu16_epi32(LoadY(values)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dense), _mm512_cvtepi32_epi16(wide));
    }
  }

  template <class U, bool kStream>
  static SPCCL_INLINE const uint8_t* ExpandWord(const uint8_t* values, uint64_t word,
                                                uint8_t* dense) {
    if constexpr (sizeof(U) >= 4 || kVbmi2) {
      for (size_t i = 0; i < sizeof(U); ++i) {
        const uint64_t mask = MaskOf<64 / sizeof(U)>(word, i);
        Put<kStream>(dense + 64 * i, Expand<U>(values, mask));
        values += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
      }
    } else {
      for (size_t part = 0; part < 4; ++part) {
        const uint64_t mask = MaskOf<16>(word, part);
        ExpandWidened<U>(values, mask, dense + part * 16 * sizeof(U));
        values += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
      }
    }
    return values;
  }

  template <class T>
  static SPCCL_INLINE const uint8_t* AddWord(const uint8_t* values, uint64_t word,
                                             uint8_t* accumulator) {
    using U = Unsigned<T>;
    for (size_t i = 0; i < sizeof(T); ++i) {
      const uint64_t mask = MaskOf<64 / sizeof(T)>(word, i);
      const __m512i old = LoadZ(accumulator + 64 * i);
      const __m512i sum = Add<T>(old, Expand<U>(values, mask));
      _mm512_storeu_si512(accumulator + 64 * i, Merge<U>(mask, old, sum));
      values += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(T);
    }
    return values;
  }

  static SPCCL_INLINE uint8_t* AppendPositions(uint64_t word, uint32_t base, uint8_t* out) {
    if constexpr (kVbmi2) {
      // Few bits a word are the rule: one compress gives all 64, one widening the first 16.
      const __m512i packed = _mm512_mask_compress_epi8(NothingBefore(), word, Iota8());
      const size_t count = static_cast<size_t>(__builtin_popcountll(word));
      const __m512i bases = _mm512_set1_epi32(static_cast<int32_t>(base));
      StorePositions(_mm512_castsi512_si128(packed), bases, out);
      if (__builtin_expect(count > 16, 0)) {
        StorePositions(_mm512_extracti32x4_epi32(packed, 1), bases, out + 64);
        if (count > 32) StorePositions(_mm512_extracti32x4_epi32(packed, 2), bases, out + 128);
        if (count > 48) StorePositions(_mm512_extracti32x4_epi32(packed, 3), bases, out + 192);
      }
      return out + count * sizeof(uint32_t);
    } else {
      for (size_t i = 0; i < 4; ++i) {
        const uint64_t mask = MaskOf<16>(word, i);
        const __m512i positions =
            _mm512_add_epi32(Iota32(), _mm512_set1_epi32(static_cast<int32_t>(base + 16 * i)));
        _mm512_storeu_si512(out, _mm512_mask_compress_epi32(
                                     NothingBefore(), static_cast<__mmask16>(mask), positions));
        out += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(uint32_t);
      }
      return out;
    }
  }

  static SPCCL_INLINE Vec<Avx512, float> WidenHalf(const uint8_t* from) {
    return _mm512_cvtph_ps(LoadY(from));
  }
  static SPCCL_INLINE Vec<Avx512, float> WidenBrain(const uint8_t* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadY(from)), 16));
  }
  static SPCCL_INLINE void NarrowBrain(const Vec<Avx512, float>& wide, uint8_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundToBrain(wide), 16)));
  }
  static SPCCL_INLINE void NarrowHalf(const Vec<Avx512, float>& wide, uint8_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(wide, kNearest));
  }

  template <class V>
  static SPCCL_INLINE void StreamStore(uint8_t* to, const V& value) {
    static_assert(sizeof(V) == kBytes);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(value));
  }
  static SPCCL_INLINE void Fence() { _mm_sfence(); }

 private:
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

  template <bool kStream>
  static SPCCL_INLINE void Put(uint8_t* to, __m512i v) {
    if constexpr (kStream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v);
    } else {
      _mm512_storeu_si512(to, v);
    }
  }

  // The lanes of `mask` from `sum`, the others from `old`.
  template <class U>
  static SPCCL_INLINE __m512i Merge(uint64_t mask, __m512i old, __m512i sum) {
    if constexpr (sizeof(U) == 1) {
      return _mm512_mask_mov_epi8(old, mask, sum);
    } else if constexpr (sizeof(U) == 2) {
      return _mm512_mask_mov_epi16(old, static_cast<__mmask32>(mask), sum);
    } else if constexpr (sizeof(U) == 4) {
      return _mm512_mask_mov_epi32(old, static_cast<__mmask16>(mask), sum);
    } else {
      return _mm512_mask_mov_epi64(old, static_cast<__mmask8>(mask), sum);
    }
  }

  template <class T>
  static SPCCL_INLINE __m512i Add(__m512i a, __m512i b) {
    if constexpr (std::is_same_v<T, Brain>) {
      // Even lanes are floats when shifted up, odd ones as they stand: no lane moves.
      const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
      const __m512 even = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                                        _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)));
      const __m512 odd = _mm512_add_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                                       _mm512_castsi512_ps(_mm512_and_si512(b, high)));
      return _mm512_mask_mov_epi16(RoundToBrain(odd), 0x55555555u,
                                   _mm512_srli_epi32(RoundToBrain(even), 16));
    } else if constexpr (std::is_same_v<T, Half>) {
      const __m512 low = _mm512_add_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(a)),
                                       _mm512_cvtph_ps(_mm512_castsi512_si256(b)));
      const __m512 high = _mm512_add_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1)),
                                        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(b, 1)));
      return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(low, kNearest)),
                                _mm512_cvtps_ph(high, kNearest), 1);
    } else {
      using V = Vec<Avx512, T>;
      return reinterpret_cast<__m512i>(reinterpret_cast<V>(a) + reinterpret_cast<V>(b));
    }
  }

  // The nearest bfloat16 in the upper half of each lane; what the lower half holds is undefined.
  // The processor's own conversion would flush subnormals.
  static SPCCL_INLINE __m512i RoundToBrain(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                                _mm512_set1_epi32(0x400000));
  }

  static SPCCL_INLINE void StorePositions(__m128i packed, __m512i bases, uint8_t* out) {
    _mm512_storeu_si512(out, _mm512_add_epi32(_mm512_cvtepu8_epi32(packed), bases));
  }

  static SPCCL_INLINE __m512i Iota32() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static SPCCL_INLINE __m512i Iota8() {
    return _mm512_add_epi8(
        _mm512_set4_epi32(0x0F0E0D0C, 0x0B0A0908, 0x07060504, 0x03020100),
        _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_setr_m128i(_mm_setzero_si128(), _mm_set1_epi8(16))),
            _mm256_setr_m128i(_mm_set1_epi8(32), _mm_set1_epi8(48)), 1));
  }
};

}  // namespace
}  // namespace spccl::host
