// NEON, which every AArch64 has. Compress and expand are table look-ups (tbl) within 128 bits.
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

struct Neon {
  static constexpr size_t kBytes = 16;
  template <class U>
  static constexpr bool kStreamsWords = false;
  template <class T>
  static constexpr bool kAddsWords = false;
  static constexpr bool kStreams = false;  // a non-temporal store is only a hint there

  // Lanes of a group: what one look-up moves.
  template <class U>
  static constexpr size_t kGroup = sizeof(U) == 1 ? 8 : 16 / sizeof(U);

  template <class U>
  static SPCCL_INLINE uint64_t NonzeroWord(const uint8_t* dense, U magnitude) {
    uint64_t word = 0;
    for (size_t i = 0; i < 64 / kGroup<U>; ++i) {
      word |= NonzeroGroup<U>(dense + i * kGroup<U> * sizeof(U), magnitude) << (i * kGroup<U>);
    }
    return word;
  }

  template <class U>
  static SPCCL_INLINE uint64_t EncodeWord(const uint8_t* dense, U magnitude, uint8_t*& out) {
    uint64_t word = 0;
    for (size_t i = 0; i < 64 / kGroup<U>; ++i) {
      const uint8_t* from = dense + i * kGroup<U> * sizeof(U);
      const uint64_t mask = NonzeroGroup<U>(from, magnitude);
      Shuffle<U>(from, CompressRow<U>(mask), out);
      out += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
      word |= mask << (i * kGroup<U>);
    }
    return word;
  }

  template <class U, bool kStream>
  static SPCCL_INLINE const uint8_t* ExpandWord(const uint8_t* values, uint64_t word,
                                                uint8_t* dense) {
    constexpr uint64_t kMask = (uint64_t{1} << kGroup<U>)-1;
    for (size_t i = 0; i < 64 / kGroup<U>; ++i) {
      const uint64_t mask = (word >> (i * kGroup<U>)) & kMask;
      Shuffle<U>(values, ExpandRow<U>(mask), dense + i * kGroup<U> * sizeof(U));
      values += static_cast<size_t>(__builtin_popcountll(mask)) * sizeof(U);
    }
    return values;
  }

  static SPCCL_INLINE uint8_t* AppendPositions(uint64_t word, uint32_t base, uint8_t* out) {
    for (; word != 0; word &= word - 1) {
      Store(out, base + static_cast<uint32_t>(__builtin_ctzll(word)));
      out += sizeof(uint32_t);
    }
    return out;
  }

  static SPCCL_INLINE Vec<Neon, float> WidenHalf(const uint8_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from)));
  }
  static SPCCL_INLINE void NarrowHalf(const Vec<Neon, float>& wide, uint8_t* to) {
    vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(wide)));
  }
  static SPCCL_INLINE Vec<Neon, float> WidenBrain(const uint8_t* from) {
    return WidenBrainByVector<Neon>(from);
  }
  static SPCCL_INLINE void NarrowBrain(const Vec<Neon, float>& wide, uint8_t* to) {
    NarrowBrainByVector<Neon>(wide, to);
  }

  template <class V>
  static SPCCL_INLINE void StreamStore(uint8_t* to, const V& value) {
    Store(to, value);
  }
  static SPCCL_INLINE void Fence() {}

 private:
  // Bit b set where lane b is not a zero: lanes of ones, reduced to a bit each, added up.
  template <class U>
  static SPCCL_INLINE uint64_t NonzeroGroup(const uint8_t* dense, U magnitude) {
    if constexpr (sizeof(U) == 1) {
      constexpr uint8_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
      return vaddv_u8(vand_u8(vtst_u8(vld1_u8(dense), vdup_n_u8(magnitude)), vld1_u8(kBits)));
    } else if constexpr (sizeof(U) == 2) {
      constexpr uint16_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
      const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(dense));
      return vaddvq_u16(vandq_u16(vtstq_u16(v, vdupq_n_u16(magnitude)), vld1q_u16(kBits)));
    } else if constexpr (sizeof(U) == 4) {
      constexpr uint32_t kBits[4] = {1, 2, 4, 8};
      const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(dense));
      return vaddvq_u32(vandq_u32(vtstq_u32(v, vdupq_n_u32(magnitude)), vld1q_u32(kBits)));
    } else {
      constexpr uint64_t kBits[2] = {1, 2};
      const uint64x2_t v = vreinterpretq_u64_u8(vld1q_u8(dense));
      return vaddvq_u64(vandq_u64(vtstq_u64(v, vdupq_n_u64(magnitude)), vld1q_u64(kBits)));
    }
  }

  template <class U>
  static SPCCL_INLINE const uint8_t* CompressRow(uint64_t mask) {
    if constexpr (sizeof(U) == 1) return kCompress8x1[mask].data();
    if constexpr (sizeof(U) == 2) return kCompress8x2[mask].data();
    if constexpr (sizeof(U) == 4) return kCompress4x4[mask].data();
    if constexpr (sizeof(U) == 8) return kCompress2x8[mask].data();
  }
  template <class U>
  static SPCCL_INLINE const uint8_t* ExpandRow(uint64_t mask) {
    if constexpr (sizeof(U) == 1) return kExpand8x1[mask].data();
    if constexpr (sizeof(U) == 2) return kExpand8x2[mask].data();
    if constexpr (sizeof(U) == 4) return kExpand4x4[mask].data();
    if constexpr (sizeof(U) == 8) return kExpand2x8[mask].data();
  }

  // tbl gives zero for the table's 0xFF.
  template <class U>
  static SPCCL_INLINE void Shuffle(const uint8_t* from, const uint8_t* row, uint8_t* to) {
    if constexpr (sizeof(U) == 1) {
      vst1_u8(to, vtbl1_u8(vld1_u8(from), vld1_u8(row)));
    } else {
      vst1q_u8(to, vqtbl1q_u8(vld1q_u8(from), vld1q_u8(row)));
    }
  }
};

}  // namespace
}  // namespace spccl::host
