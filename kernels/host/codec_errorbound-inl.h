// Bodies of the errorbound format: integers that count quanta, predicted by the one before in their
// block, folded, and kept as the planes of their group.
//
// Source: gZCCL (Huang et al., ICS '24) and the compressor that it builds on, cuSZp. Theirs are the
// quantisation, the prediction by the neighbour and the fixed length a block. Ours: elements whose
// bound would not hold are kept exactly, bases apart from differences, and a length a group.
#pragma once

#include "kernels/host/codec_planes-inl.h"

namespace spccl::host {
namespace {

inline constexpr uint64_t kBlock = kErrorBlockElements;

template <class T>
struct Quantum {
  T quantum;
  T inverse;
  T bound;
};

// The integer of x, and whether decoding it keeps the bound. Exact: `distance` is a subtraction of
// floats, rounded to the nearest, so that it is below the bound, which is a float too, only if the
// real distance is. Comparisons with a NaN fail.
template <class V, class T>
SPCCL_INLINE auto QuantiseAs(const V& x, const Quantum<T>& by, V* shifted) {
  *shifted = x * by.inverse + Rounding<T>::kMagic;
  const V whole = *shifted - Rounding<T>::kMagic;
  const V distance = whole * by.quantum - x;
  return (distance < by.bound) & (distance > -by.bound) & (whole < Rounding<T>::kLimit) &
         (whole > -Rounding<T>::kLimit);
}

// integers[0, 256): of a block; whether all of it keeps the bound.
template <class S, class T>
SPCCL_INLINE bool QuantiseBlock(const uint8_t* dense, const Quantum<T>& by, uint8_t* integers) {
  using U = Unsigned<T>;
  using Mask = Vec<S, std::make_signed_t<U>>;
  Mask good = ~Mask{};
  for (uint64_t i = 0; i < kBlock; i += kLanes<S, T>) {
    Vec<S, T> shifted;
    good &= QuantiseAs(Load<Vec<S, T>>(dense + i * sizeof(T)), by, &shifted);
    Store(integers + i * sizeof(U), reinterpret_cast<Vec<S, U>>(shifted) - kMagicBits<T>);
  }
  bool all = true;
  for (size_t lane = 0; lane < kLanes<S, T>; ++lane) all = all && good[lane] != 0;
  return all;
}

// Appends to the exactly kept those of a block that would not keep the bound; each takes the
// integer of its neighbour, which costs least.
template <class T>
void KeepExactly(const uint8_t* dense, uint64_t first, uint64_t count, const Quantum<T>& by,
                 uint8_t* integers, ErrorBoundSections* out) {
  using U = Unsigned<T>;
  U last = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const T x = Load<T>(dense + i * sizeof(T));
    T shifted;
    if (QuantiseAs(x, by, &shifted)) {
      last = Load<U>(integers + i * sizeof(U));
      continue;
    }
    Store(integers + i * sizeof(U), last);
    Store(out->positions, static_cast<uint32_t>(first + i));
    Store(out->values, x);
    out->positions += sizeof(uint32_t);
    out->values += sizeof(T);
  }
}

// Folded differences of a block's integers; integers[-1] is readable and takes the first, which is
// the block's base.
template <class S, class U>
SPCCL_INLINE void Differ(uint8_t* integers, uint8_t* folded) {
  Store(integers - sizeof(U), Load<U>(integers));
  for (uint64_t i = 0; i < kBlock; i += kLanes<S, U>) {
    const uint8_t* at = integers + i * sizeof(U);
    Store(folded + i * sizeof(U),
          Folded<S, U>(Load<Vec<S, U>>(at) - Load<Vec<S, U>>(at - sizeof(U))));
  }
}

// Bits of the largest of 64 integers.
template <class S, class U>
SPCCL_INLINE uint32_t PlanesOf(const uint8_t* integers) {
  Vec<S, U> all{};
  for (size_t i = 0; i < kGroupElements; i += kLanes<S, U>) {
    all |= Load<Vec<S, U>>(integers + i * sizeof(U));
  }
  uint64_t bits = 0;
  for (size_t lane = 0; lane < kLanes<S, U>; ++lane) bits |= all[lane];
  return bits == 0 ? 0 : 64 - static_cast<uint32_t>(__builtin_clzll(bits));
}

// Returns the plane words; the sections' pointers move to where the next block, or the next exactly
// kept element, goes.
template <class S, class T>
uint64_t EncodeErrorBound(const uint8_t* dense, uint64_t elements, double quantum, double bound,
                          ErrorBoundSections* out) {
  using U = Unsigned<T>;
  const auto width = static_cast<T>(quantum);
  const Quantum<T> by{width, T{1} / width, static_cast<T>(bound)};
  alignas(64) uint8_t room[64 + kBlock * sizeof(U)];
  alignas(64) uint8_t folded[kBlock * sizeof(U)];
  uint8_t* const integers = room + 64;
  const uint8_t* const planes = out->planes;
  for (uint64_t first = 0; first < elements; first += kBlock) {
    const uint64_t count = Smaller(elements - first, kBlock);
    const uint8_t* from = dense + first * sizeof(T);
    PrefetchAhead<kBlock * sizeof(T)>(from);
    if (count < kBlock) {  // what is missing continues the last
      __builtin_memcpy(folded, from, count * sizeof(T));
      const T last = Load<T>(from + (count - 1) * sizeof(T));
      for (uint64_t i = count; i < kBlock; ++i) Store(folded + i * sizeof(T), last);
      from = folded;
    }
    if (!QuantiseBlock<S, T>(from, by, integers)) {
      KeepExactly<T>(from, first, count, by, integers, out);
      const U last = Load<U>(integers + (count - 1) * sizeof(U));
      for (uint64_t i = count; i < kBlock; ++i) Store(integers + i * sizeof(U), last);
    }
    Store(out->index, static_cast<uint32_t>(static_cast<uint64_t>(out->planes - planes) / 8));
    Store(out->bases, Load<U>(integers));
    out->index += sizeof(uint32_t);
    out->bases += sizeof(U);
    Differ<S, U>(integers, folded);
    for (uint64_t group = 0; group < kErrorBlockGroups; ++group) {
      const uint8_t* members = folded + group * kGroupElements * sizeof(U);
      const uint32_t count_of_planes = PlanesOf<S, U>(members);
      *out->widths++ = static_cast<uint8_t>(count_of_planes);
      out->planes = WritePlanes<S, U>(members, count_of_planes, out->planes);
    }
  }
  return static_cast<uint64_t>(out->planes - planes) / 8;
}

template <size_t kBy, class V, size_t... kLane>
SPCCL_INLINE V MovedUp(const V& v, std::index_sequence<kLane...>) {
  constexpr size_t kCount = sizeof...(kLane);
  return __builtin_shufflevector(V{}, v, (kLane < kBy ? kLane : kCount + kLane - kBy)...);
}
template <class V, size_t... kLane>
SPCCL_INLINE V LastOf(const V& v, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(v, v, (kLane * 0 + sizeof...(kLane) - 1)...);
}

// Lane i: the sum of lanes 0 to i.
template <class S, class U, size_t kBy = 1>
SPCCL_INLINE Vec<S, U> RunningSums(Vec<S, U> v) {
  constexpr size_t kCount = kLanes<S, U>;
  if constexpr (kBy < kCount) {
    return RunningSums<S, U, kBy * 2>(v + MovedUp<kBy>(v, std::make_index_sequence<kCount>()));
  } else {
    return v;
  }
}

// The quanta of one block; `exact` elements are not put in their places.
template <class S, class T>
SPCCL_INLINE const uint8_t* DecodeBlock(const uint8_t* planes, const uint8_t* widths,
                                        const uint8_t* base, T quantum, uint8_t* to) {
  using U = Unsigned<T>;
  constexpr size_t kStep = kLanes<S, U>;
  Vec<S, U> carry = Vec<S, U>{} + Load<U>(base);
  for (uint64_t group = 0; group < kErrorBlockGroups; ++group) {
    const uint32_t width = widths[group];
    for (size_t part = 0; part < kGroupElements / kStep; ++part, to += S::kBytes) {
      const Vec<S, U> sums =
          RunningSums<S, U>(Unfolded<S, U>(ReadPlanes<S, U>(planes, width, part))) + carry;
      carry = LastOf(sums, std::make_index_sequence<kStep>());
      Store(to, FloatsOf<S, T>(sums) * quantum);
    }
    planes += uint64_t{width} * sizeof(uint64_t);
  }
  return planes;
}

// Calls use(values, first, count) for every block, in order.
template <class S, class T, class Use>
SPCCL_INLINE void ForEachBlock(const ConstErrorBoundSections& in, uint64_t elements, Use use) {
  alignas(64) uint8_t values[kBlock * sizeof(T)];
  const auto quantum = static_cast<T>(in.quantum);
  const uint8_t* planes = in.planes;
  uint64_t next = 0;
  for (uint64_t first = 0, block = 0; first < elements; first += kBlock, ++block) {
    const uint64_t count = Smaller(elements - first, kBlock);
    planes = DecodeBlock<S, T>(planes, in.widths + block * kErrorBlockGroups,
                               in.bases + block * sizeof(T), quantum, values);
    for (; next < in.exact; ++next) {
      const uint64_t at = Load<uint32_t>(in.positions + 4 * next) - first;
      if (at >= count) break;
      __builtin_memcpy(values + at * sizeof(T), in.values + next * sizeof(T), sizeof(T));
    }
    use(values, first, count);
  }
}

template <class S, class T>
void DecodeErrorBound(const ConstErrorBoundSections& in, uint64_t elements, uint8_t* dense,
                      bool streaming) {
  ForEachBlock<S, T>(in, elements, [&](const uint8_t* values, uint64_t first, uint64_t count) {
    CopyOut<S>(values, dense + first * sizeof(T), count * sizeof(T), streaming);
  });
  if (streaming) S::Fence();
}

template <class S, class T>
void ReduceErrorBound(const ConstErrorBoundSections& in, uint64_t elements, uint8_t* accumulator) {
  ForEachBlock<S, T>(in, elements, [&](const uint8_t* values, uint64_t first, uint64_t count) {
    AddValues<S, T>(values, count, accumulator + first * sizeof(T));
  });
}

}  // namespace
}  // namespace spccl::host
