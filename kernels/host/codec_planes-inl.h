// What the bodies of the lossy formats share: floats as integers, integers as planes.
#pragma once

#include "kernels/host/codec_reduce-inl.h"
#include "kernels/lossy_layout.h"

namespace spccl::host {
namespace {

// A float's own unsigned integer, and the number that makes integers of floats: after adding kMagic
// a float's lowest bits are the integer that it was nearest to, below kLimit in magnitude.
template <class T>
struct Rounding;
template <>
struct Rounding<float> {
  static constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
  static constexpr float kLimit = 4194304.0F;   // 2^22
};
template <>
struct Rounding<double> {
  static constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLimit = 2251799813685248.0;  // 2^51
};
template <class T>
inline constexpr Unsigned<T> kMagicBits = __builtin_bit_cast(Unsigned<T>, Rounding<T>::kMagic);

template <class S, class T>
SPCCL_INLINE Vec<S, T> FloatsOf(const Vec<S, Unsigned<T>>& integers) {
  return reinterpret_cast<Vec<S, T>>(integers + kMagicBits<T>) - Rounding<T>::kMagic;
}

// Small magnitudes of either sign as small unsigned numbers, and back.
template <class S, class U>
SPCCL_INLINE Vec<S, U> Folded(const Vec<S, U>& v) {
  constexpr int kSign = sizeof(U) * 8 - 1;
  return (v << 1) ^ (U{0} - (v >> kSign));
}
template <class S, class U>
SPCCL_INLINE Vec<S, U> Unfolded(const Vec<S, U>& v) {
  return (v >> 1) ^ (U{0} - (v & 1));
}

template <class U, size_t... kLane>
SPCCL_INLINE auto LaneNumbers(std::index_sequence<kLane...>) {
  using V = typename VectorOf<U, sizeof...(kLane) * sizeof(U)>::Type;
  return V{static_cast<U>(kLane)...};
}

// Writes the planes of 64 integers; returns past the last.
template <class S, class U>
SPCCL_INLINE uint8_t* WritePlanes(const uint8_t* integers, uint32_t planes, uint8_t* out) {
  for (uint32_t plane = 0; plane < planes; ++plane, out += sizeof(uint64_t)) {
    Store(out, S::template NonzeroWord<U>(integers, static_cast<U>(U{1} << plane)));
  }
  return out;
}

// The integers that a vector's lanes have in the planes of a group; the vector is number `part`.
template <class S, class U>
SPCCL_INLINE Vec<S, U> ReadPlanes(const uint8_t* words, uint32_t planes, size_t part) {
  constexpr size_t kCount = kLanes<S, U>;
  const Vec<S, U> lane = LaneNumbers<U>(std::make_index_sequence<kCount>());
  Vec<S, U> integers{};
  for (uint32_t plane = planes; plane-- > 0;) {
    const auto bits = static_cast<U>(Load<uint64_t>(words + 8 * plane) >> (part * kCount));
    integers = (integers << 1) | (((Vec<S, U>{} + bits) >> lane) & 1);
  }
  return integers;
}

// The largest magnitude as bits, of finite elements only if kFinite. Bits of magnitudes order as
// the magnitudes do, and as signed integers.
template <class S, class T, bool kFinite>
SPCCL_INLINE Unsigned<T> LargestBits(const uint8_t* dense, uint64_t elements) {
  using U = Unsigned<T>;
  using I = std::make_signed_t<U>;
  constexpr I kInfinity = __builtin_bit_cast(I, std::numeric_limits<T>::infinity());
  constexpr size_t kStep = kLanes<S, U>;
  const auto larger = [](auto a, auto b) {
    const auto is = a > b;
    return (a & is) | (b & ~is);
  };
  Vec<S, I> most{};
  uint64_t i = 0;
  for (; i + kStep <= elements; i += kStep) {
    Vec<S, I> bits = Load<Vec<S, I>>(dense + i * sizeof(T)) & static_cast<I>(kMagnitude<T>);
    if constexpr (kFinite) bits &= bits < kInfinity;
    most = larger(bits, most);
  }
  I largest = 0;
  for (size_t lane = 0; lane < kStep; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  for (; i < elements; ++i) {
    const I bits = Load<I>(dense + i * sizeof(T)) & static_cast<I>(kMagnitude<T>);
    if (bits > largest && (!kFinite || bits < kInfinity)) largest = bits;
  }
  return static_cast<U>(largest);
}

// For error bounds that are relative.
template <class S, class T>
double LargestFinite(const uint8_t* dense, uint64_t elements) {
  return static_cast<double>(__builtin_bit_cast(T, LargestBits<S, T, true>(dense, elements)));
}

// Adds `count` values, of which whole vectors may be read, to the accumulator.
template <class S, class T>
SPCCL_INLINE void AddValues(const uint8_t* values, uint64_t count, uint8_t* accumulator) {
  ReduceDenseAs<S, T, T, T>(values, count, accumulator);
}

}  // namespace
}  // namespace spccl::host
