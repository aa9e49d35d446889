// What every target's bodies share. Included once in each target's source, inside its target
// region: all of it has internal linkage, so that no function compiled for one instruction set can
// be taken by the linker for another's.
#pragma once

#include "kernels/host/target_includes.h"

#define SPCCL_INLINE inline __attribute__((always_inline))
#define SPCCL_NOINLINE __attribute__((noinline))

namespace spccl::host {
namespace {

inline constexpr size_t kWordElements = 64;
inline constexpr size_t kSlackBytes = 64;  // what a hook may read or write past its last element

// A vector of T in the compilers' common vector extension.
template <class T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class S, class T>
using Vec = typename VectorOf<T, S::kBytes>::Type;
template <class S, class T>
inline constexpr size_t kLanes = S::kBytes / sizeof(T);

// Unaligned loads and stores of anything trivially copyable.
template <class T>
SPCCL_INLINE T Load(const void* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
SPCCL_INLINE void Store(void* to, const T& value) {
  __builtin_memcpy(to, &value, sizeof(T));
}

// Asks for the kSize bytes that are prefetch_ahead behind `from`, which need not exist.
template <size_t kSize>
SPCCL_INLINE void PrefetchAhead(const uint8_t* from) {
  const uintptr_t first =
      reinterpret_cast<uintptr_t>(from) + __atomic_load_n(&prefetch_ahead, __ATOMIC_RELAXED);
  for (uintptr_t line = 0; line < kSize; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + line));
  }
}

// Copies `bytes` bytes, streaming those that fill aligned vectors of the output. Unordered until
// S::Fence(). kFar: from memory, or another core's cache.
template <class S, bool kFar = false>
SPCCL_INLINE void CopyOut(const uint8_t* from, uint8_t* to, uint64_t bytes, bool streaming) {
  streaming = streaming && S::kStreams;
  if (!kFar && !streaming) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  using V = Vec<S, uint64_t>;
  const uint64_t misaligned = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  const uint64_t head = misaligned < bytes ? misaligned : bytes;
  __builtin_memcpy(to, from, head);
  uint64_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    if constexpr (kFar) PrefetchAhead<64>(from + at);
    for (size_t part = 0; part < 64; part += S::kBytes) {
      const V line = Load<V>(from + at + part);
      if (streaming) {
        S::StreamStore(to + at + part, line);
      } else {
        Store(to + at + part, line);
      }
    }
  }
  __builtin_memcpy(to + at, from + at, bytes - at);
}

// Storage types of the 16-bit floats; all others are stored as what they are.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

template <class T>
struct AccumulatorType {
  using Type = T;
};
template <>
struct AccumulatorType<Half> {
  using Type = float;
};
template <>
struct AccumulatorType<Brain> {
  using Type = float;
};

// The unsigned integer of a type's width.
template <size_t kSize>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using Type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using Type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using Type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using Type = uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::Type;

template <class T>
inline constexpr bool kIsFloat =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <class T>
inline constexpr Unsigned<T> kMagnitude =
    static_cast<Unsigned<T>>(std::numeric_limits<Unsigned<T>>::max() >> (kIsFloat<T> ? 1 : 0));

// bfloat16 <-> float32 in the vector extension alone, for targets with nothing better.
template <class S>
SPCCL_INLINE Vec<S, float> WidenBrainByVector(const uint8_t* from) {
  using Narrow = typename VectorOf<uint16_t, S::kBytes / 2>::Type;
  const auto wide = __builtin_convertvector(Load<Narrow>(from), Vec<S, uint32_t>);
  return reinterpret_cast<Vec<S, float>>(wide << 16);
}
template <class S>
SPCCL_INLINE void NarrowBrainByVector(const Vec<S, float>& value, uint8_t* to) {
  using Narrow = typename VectorOf<uint16_t, S::kBytes / 2>::Type;
  using Wide = Vec<S, uint32_t>;
  const Wide bits = reinterpret_cast<Wide>(value);
  const Wide rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const Wide quiet = (bits >> 16) | 0x40u;
  const Wide is_nan = reinterpret_cast<Wide>((bits & 0x7FFFFFFFu) > 0x7F800000u);
  Store(to, __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), Narrow));
}

// kLanes<S, A> elements of storage type T as a vector of A, and back (rounded to nearest even).
template <class S, class T, class A>
SPCCL_INLINE Vec<S, A> LoadAs(const uint8_t* from) {
  constexpr size_t kCount = kLanes<S, A>;
  if constexpr (std::is_same_v<T, A>) {
    return Load<Vec<S, A>>(from);
  } else if constexpr (std::is_same_v<T, Half>) {
    return S::WidenHalf(from);
  } else if constexpr (std::is_same_v<T, Brain>) {
    return S::WidenBrain(from);
  } else {
    using Narrow = typename VectorOf<T, kCount * sizeof(T)>::Type;
    return __builtin_convertvector(Load<Narrow>(from), Vec<S, A>);
  }
}

template <class S, class T, class A>
SPCCL_INLINE void StoreAs(uint8_t* to, const Vec<S, A>& value) {
  constexpr size_t kCount = kLanes<S, A>;
  if constexpr (std::is_same_v<T, A>) {
    Store(to, value);
  } else if constexpr (std::is_same_v<T, Half>) {
    S::NarrowHalf(value, to);
  } else if constexpr (std::is_same_v<T, Brain>) {
    S::NarrowBrain(value, to);
  } else {
    using Narrow = typename VectorOf<T, kCount * sizeof(T)>::Type;
    Store(to, __builtin_convertvector(value, Narrow));
  }
}

// One element, with the same results as the vector forms.
template <class T, class A>
SPCCL_INLINE A LoadOne(const uint8_t* from) {
  if constexpr (std::is_same_v<T, Half>) {
    return Float16ToFloat(Load<uint16_t>(from));
  } else if constexpr (std::is_same_v<T, Brain>) {
    return Bfloat16ToFloat(Load<uint16_t>(from));
  } else {
    return static_cast<A>(Load<T>(from));
  }
}

template <class T, class A>
SPCCL_INLINE void StoreOne(uint8_t* to, A value) {
  if constexpr (std::is_same_v<T, Half>) {
    Store(to, FloatToFloat16(value));
  } else if constexpr (std::is_same_v<T, Brain>) {
    Store(to, FloatToBfloat16(value));
  } else {
    Store(to, static_cast<T>(value));
  }
}

// Integers wrap: their arithmetic is unsigned, and never promoted to a signed int.
template <class A>
SPCCL_INLINE A WrapAdd(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    return a + b;
  } else {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}
template <class A>
SPCCL_INLINE A WrapMul(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    return a * b;
  } else {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
}

}  // namespace
}  // namespace spccl::host
