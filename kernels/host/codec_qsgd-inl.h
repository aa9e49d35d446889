// Bodies of the QSGD formats: of each element the level, a multiple of its bucket's scale, drawn at
// random between the two around it so that its expectation is the element.
//
// Source: Alistarh et al., QSGD (NIPS '17), as SparCML (Renggli et al., SC '19) uses it: 2, 4 or 8
// bits, buckets of 1,024. The scale is the bucket's largest magnitude over the highest level.
#pragma once

#include "kernels/host/codec_planes-inl.h"

namespace spccl::host {
namespace {

// A mix of 32 bits in which every input bit reaches every output bit; lanes may be wider, their
// upper halves are zero.
template <class V>
SPCCL_INLINE V Mixed(V v) {
  v ^= v >> 16;
  v = (v * 0x7FEB352DU) & 0xFFFFFFFFU;
  v ^= v >> 15;
  v = (v * 0x846CA68BU) & 0xFFFFFFFFU;
  return v ^ (v >> 16);
}

// The draws of a bucket, whose elements have the low halves of their numbers from `first` on.
struct BucketDraws {
  uint32_t first, low, high;
};

// `number`: that of the bucket's first element.
SPCCL_INLINE BucketDraws DrawsOf(uint64_t seed, uint64_t number) {
  const auto beyond = static_cast<uint32_t>(number >> 32);
  return {static_cast<uint32_t>(number), static_cast<uint32_t>(seed),
          static_cast<uint32_t>(seed >> 32) + beyond * 0x9E3779B9U};
}

// Uniform in [0, 1) in steps of 2^-24, for the bucket's elements from `at` on: a function of the
// seed and the element's number, and past 2^32 of where its bucket begins.
template <class S, class T>
SPCCL_INLINE Vec<S, T> Uniforms(const BucketDraws& draws, uint64_t at) {
  using U = Unsigned<T>;
  const Vec<S, U> number = (LaneNumbers<U>(std::make_index_sequence<kLanes<S, U>>()) +
                            static_cast<U>(draws.first + static_cast<uint32_t>(at))) &
                           0xFFFFFFFFU;
  const Vec<S, U> once = Mixed(number ^ static_cast<U>(draws.low));
  const Vec<S, U> twice = Mixed((once + static_cast<U>(draws.high)) & 0xFFFFFFFFU);
  // 24 bits are integers that FloatsOf() takes only in halves.
  const Vec<S, T> high = FloatsOf<S, T>(twice >> 20);
  const Vec<S, T> low = FloatsOf<S, T>((twice >> 8) & 0xFFFU);
  return high * T{0x1p-12} + low * T{0x1p-24};
}

// Folded levels of 1,024 elements.
template <class S, class T>
SPCCL_INLINE void DrawLevels(const uint8_t* dense, const BucketDraws& draws, T inverse, T highest,
                             uint8_t* folded) {
  using U = Unsigned<T>;
  using V = Vec<S, T>;
  for (uint64_t i = 0; i < kBucketElements; i += kLanes<S, T>) {
    const V x = Load<V>(dense + i * sizeof(T)) * inverse;
    const Vec<S, U> sign = reinterpret_cast<Vec<S, U>>(x) >> (sizeof(T) * 8 - 1);
    const V size = reinterpret_cast<V>(reinterpret_cast<Vec<S, U>>(x) & kMagnitude<T>);
    V below = (size + Rounding<T>::kMagic) - Rounding<T>::kMagic;
    const V one = V{} + T{1};
    const auto chosen = [&](auto mask) {
      return reinterpret_cast<V>(reinterpret_cast<Vec<S, U>>(mask) &
                                 reinterpret_cast<Vec<S, U>>(one));
    };
    below -= chosen(below > size);
    V level = below + chosen(Uniforms<S, T>(draws, i) < size - below);
    level -= chosen(level > highest);  // the scale's rounding
    const Vec<S, U> integer =
        reinterpret_cast<Vec<S, U>>(level + Rounding<T>::kMagic) - kMagicBits<T>;
    Store(folded + i * sizeof(U), Folded<S, U>((integer ^ (U{0} - sign)) + sign));
  }
}

// Bounds of a bucket's largest magnitude between which nothing overflows and nothing is flushed.
template <class T>
struct BucketRange;
template <>
struct BucketRange<float> {
  static constexpr float kLeast = 0x1p-100F, kMost = 0x1p126F;
};
template <>
struct BucketRange<double> {
  static constexpr double kLeast = 0x1p-900, kMost = 0x1p1022;
};

// False if a bucket cannot be scaled: a NaN, an infinity, or a largest magnitude out of range.
template <class S, class T>
bool EncodeQsgd(const uint8_t* dense, uint64_t elements, uint32_t bits, const Draws& draws,
                uint8_t* planes, uint8_t* scales) {
  using U = Unsigned<T>;
  const auto highest = static_cast<T>((uint32_t{1} << (bits - 1)) - 1);
  alignas(64) uint8_t folded[kBucketElements * sizeof(U)];
  for (uint64_t first = 0; first < elements; first += kBucketElements) {
    const uint64_t count = Smaller(elements - first, kBucketElements);
    const uint8_t* from = dense + first * sizeof(T);
    const T largest = __builtin_bit_cast(T, LargestBits<S, T, false>(from, count));
    const bool scalable = largest >= BucketRange<T>::kLeast && largest <= BucketRange<T>::kMost;
    if (!scalable && largest != 0) return false;
    Store(scales, scalable ? largest / highest : T{0});
    scales += sizeof(T);
    if (count < kBucketElements) {
      __builtin_memset(folded, 0, sizeof(folded));
      __builtin_memcpy(folded, from, count * sizeof(T));
      from = folded;
    }
    DrawLevels<S, T>(from, DrawsOf(draws.seed, draws.first + first),
                     scalable ? highest / largest : T{0}, highest, folded);
    for (uint64_t group = 0; group < GroupsOf(count); ++group) {
      planes = WritePlanes<S, U>(folded + group * kGroupElements * sizeof(U), bits, planes);
    }
  }
  return true;
}

template <class S, class T, class Use>
SPCCL_INLINE void ForEachBucket(const ConstQsgdSections& in, uint64_t elements, Use use) {
  using U = Unsigned<T>;
  alignas(64) uint8_t values[kBucketElements * sizeof(T)];
  const uint8_t* planes = in.planes;
  for (uint64_t first = 0; first < elements; first += kBucketElements) {
    const uint64_t count = Smaller(elements - first, kBucketElements);
    const T scale = Load<T>(in.scales + first / kBucketElements * sizeof(T));
    uint8_t* to = values;
    for (uint64_t group = 0; group < GroupsOf(count); ++group) {
      for (size_t part = 0; part < kGroupElements / kLanes<S, U>; ++part, to += S::kBytes) {
        const Vec<S, U> levels = Unfolded<S, U>(ReadPlanes<S, U>(planes, in.bits, part));
        Store(to, FloatsOf<S, T>(levels) * scale);
      }
      planes += uint64_t{in.bits} * sizeof(uint64_t);
    }
    use(values, first, count);
  }
}

template <class S, class T>
void DecodeQsgd(const ConstQsgdSections& in, uint64_t elements, uint8_t* dense, bool streaming) {
  ForEachBucket<S, T>(in, elements, [&](const uint8_t* values, uint64_t first, uint64_t count) {
    CopyOut<S>(values, dense + first * sizeof(T), count * sizeof(T), streaming);
  });
  if (streaming) S::Fence();
}

template <class S, class T>
void ReduceQsgd(const ConstQsgdSections& in, uint64_t elements, uint8_t* accumulator) {
  ForEachBucket<S, T>(in, elements, [&](const uint8_t* values, uint64_t first, uint64_t count) {
    AddValues<S, T>(values, count, accumulator + first * sizeof(T));
  });
}

}  // namespace
}  // namespace spccl::host
