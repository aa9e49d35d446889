// AVX2 with F16C, BMI and POPCNT (x86-64-v3). Compress and expand are table look-ups, eight lanes
// (four of 64 bits) at a time.
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

struct Avx2 {
  static constexpr size_t kBytes = 32;
  template <class U>
  static constexpr bool kStreamsWords = sizeof(U) > 1;
  template <class T>
  static constexpr bool kAddsWords = false;
  static constexpr bool kStreams = true;

  template <class U>
  static SPCCL_INLINE uint64_t NonzeroWord(const uint8_t* dense, U magnitude) {
    uint64_t word = 0;
    if constexpr (sizeof(U) == 1) {
      for (size_t i = 0; i < 2; ++i) {
        word |= static_cast<uint64_t>(~ZeroBytes(LoadVec(dense + 32 * i), magnitude)) << (32 * i);
      }
    } else if constexpr (sizeof(U) == 2) {
      const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(magnitude));
      for (size_t i = 0; i < 2; ++i) {
        const __m256i a = Zero16(LoadVec(dense + 64 * i), mask);
        const __m256i b = Zero16(LoadVec(dense + 64 * i + 32), mask);
        const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
        word |= static_cast<uint64_t>(~static_cast<uint32_t>(_mm256_movemask_epi8(both)))
                << (32 * i);
      }
    } else if constexpr (sizeof(U) == 4) {
      for (size_t i = 0; i < 8; ++i) word |= Mask32(LoadVec(dense + 32 * i), magnitude) << (8 * i);
    } else {
      for (size_t i = 0; i < 16; ++i) word |= Mask64(LoadVec(dense + 32 * i), magnitude) << (4 * i);
    }
    return word;
  }

  template <class U>
  static SPCCL_INLINE uint64_t EncodeWord(const uint8_t* dense, U magnitude, uint8_t*& out) {
    constexpr size_t kGroup = sizeof(U) == 8 ? 4 : 8;
    const uint64_t word = NonzeroWord<U>(dense, magnitude);
    for (size_t i = 0; i < 64 / kGroup; ++i) {
      const size_t mask = (word >> (i * kGroup)) & ((1u << kGroup) - 1);
      CompressGroup<U>(dense + i * kGroup * sizeof(U), mask, out);
      out += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
    }
    return word;
  }

  template <class U, bool kStream>
  static SPCCL_INLINE const uint8_t* ExpandWord(const uint8_t* values, uint64_t word,
                                                uint8_t* dense) {
    constexpr size_t kGroup = sizeof(U) == 8 ? 4 : 8;
    for (size_t i = 0; i < 64 / kGroup; ++i) {
      const size_t mask = (word >> (i * kGroup)) & ((1u << kGroup) - 1);
      ExpandGroup<U, kStream>(values, mask, dense + i * kGroup * sizeof(U));
      values += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
    }
    return values;
  }

  static SPCCL_INLINE uint8_t* AppendPositions(uint64_t word, uint32_t base, uint8_t* out) {
    for (; word != 0; word >>= 8, base += 8) {
      const size_t mask = word & 0xFF;
      const __m256i lanes = _mm256_cvtepu8_epi32(LoadHalf(kCompress8x1[mask].data()));
      StoreVec(out, _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int32_t>(base))));
      out += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(uint32_t);
    }
    return out;
  }

  static SPCCL_INLINE Vec<Avx2, float> WidenHalf(const uint8_t* from) {
    return _mm256_cvtph_ps(Load128(from));
  }
  static SPCCL_INLINE void NarrowHalf(const Vec<Avx2, float>& wide, uint8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }

  static SPCCL_INLINE Vec<Avx2, float> WidenBrain(const uint8_t* from) {
    return WidenBrainByVector<Avx2>(from);
  }
  static SPCCL_INLINE void NarrowBrain(const Vec<Avx2, float>& wide, uint8_t* to) {
    NarrowBrainByVector<Avx2>(wide, to);
  }

  template <class V>
  static SPCCL_INLINE void StreamStore(uint8_t* to, const V& value) {
    static_assert(sizeof(V) == kBytes);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
  }
  static SPCCL_INLINE void Fence() { _mm_sfence(); }

 private:
  static SPCCL_INLINE __m256i LoadVec(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static SPCCL_INLINE void StoreVec(uint8_t* to, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
  }
  static SPCCL_INLINE __m128i Load128(const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static SPCCL_INLINE __m128i LoadHalf(const uint8_t* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }

  static SPCCL_INLINE uint32_t ZeroBytes(__m256i v, uint8_t magnitude) {
    const __m256i bits = _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(magnitude)));
    return static_cast<uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(bits, _mm256_setzero_si256())));
  }
  static SPCCL_INLINE __m256i Zero16(__m256i v, __m256i magnitude) {
    return _mm256_cmpeq_epi16(_mm256_and_si256(v, magnitude), _mm256_setzero_si256());
  }
  static SPCCL_INLINE uint64_t Mask32(__m256i v, uint32_t magnitude) {
    const __m256i bits = _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int32_t>(magnitude)));
    const __m256i zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    return static_cast<uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(zero))) ^ 0xFF;
  }
  static SPCCL_INLINE uint64_t Mask64(__m256i v, uint64_t magnitude) {
    const __m256i bits = _mm256_and_si256(v, _mm256_set1_epi64x(static_cast<int64_t>(magnitude)));
    const __m256i zero = _mm256_cmpeq_epi64(bits, _mm256_setzero_si256());
    return static_cast<uint64_t>(_mm256_movemask_pd(_mm256_castsi256_pd(zero))) ^ 0xF;
  }

  template <class U>
  static SPCCL_INLINE void CompressGroup(const uint8_t* dense, size_t mask, uint8_t* out) {
    if constexpr (sizeof(U) == 1) {
      const __m128i v = _mm_shuffle_epi8(LoadHalf(dense), LoadHalf(kCompress8x1[mask].data()));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), v);
    } else if constexpr (sizeof(U) == 2) {
      const __m128i v = _mm_shuffle_epi8(Load128(dense), Load128(kCompress8x2[mask].data()));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), v);
    } else {
      const __m256i lanes = _mm256_cvtepu8_epi32(LoadHalf(CompressRow<U>(mask)));
      StoreVec(out, _mm256_permutevar8x32_epi32(LoadVec(dense), lanes));
    }
  }

  template <class U, bool kStream>
  static SPCCL_INLINE void ExpandGroup(const uint8_t* values, size_t mask, uint8_t* dense) {
    if constexpr (sizeof(U) == 1) {
      const __m128i v = _mm_shuffle_epi8(LoadHalf(values), LoadHalf(kExpand8x1[mask].data()));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(dense), v);
    } else if constexpr (sizeof(U) == 2) {
      const __m128i v = _mm_shuffle_epi8(Load128(values), Load128(kExpand8x2[mask].data()));
      if constexpr (kStream) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(dense), v);
      } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dense), v);
      }
    } else {
      // 0xFF in the table is -1 here: any lane, then cleared.
      const __m256i lanes = _mm256_cvtepi8_epi32(LoadHalf(ExpandRow<U>(mask)));
      const __m256i v = _mm256_permutevar8x32_epi32(LoadVec(values), lanes);
      const __m256i expanded = _mm256_andnot_si256(_mm256_srai_epi32(lanes, 31), v);
      if constexpr (kStream) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(dense), expanded);
      } else {
        StoreVec(dense, expanded);
      }
    }
  }

  template <class U>
  static SPCCL_INLINE const uint8_t* CompressRow(size_t mask) {
    return sizeof(U) == 4 ? kCompress8x1[mask].data() : kCompress4x2[mask].data();
  }
  template <class U>
  static SPCCL_INLINE const uint8_t* ExpandRow(size_t mask) {
    return sizeof(U) == 4 ? kExpand8x1[mask].data() : kExpand4x2[mask].data();
  }
};

}  // namespace
}  // namespace spccl::host
