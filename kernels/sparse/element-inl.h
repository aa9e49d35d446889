// Elements as GPU kernels see them: storage types, the type that sums are made in, and memory
// access that both compilers turn into one instruction.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/float16.h"
#include "kernels/simt/lane.h"

namespace spccl::sparse {

// 16-bit floats in memory.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

template <size_t kBytes>
using Unsigned = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;

// The type in which elements of storage type T are added.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, Brain>, float, T>;

// Element `index` of type T of the array at `base`, which is aligned to T. Through memcpy on the
// host, whose arrays are bytes; nvcc, which would copy byte by byte, is given the plain access.
template <class T>
SPCCL_DEVICE T LoadAt(const void* base, uint64_t index) {
#if defined(__CUDA_ARCH__)
  return static_cast<const T*>(base)[index];
#else
  T value;
  __builtin_memcpy(&value, static_cast<const uint8_t*>(base) + index * sizeof(T), sizeof(T));
  return value;
#endif
}
template <class T>
SPCCL_DEVICE void StoreAt(void* base, uint64_t index, const T& value) {
#if defined(__CUDA_ARCH__)
  static_cast<T*>(base)[index] = value;
#else
  __builtin_memcpy(static_cast<uint8_t*>(base) + index * sizeof(T), &value, sizeof(T));
#endif
}

SPCCL_HOST_DEVICE const uint8_t* At(const void* base, uint64_t bytes) {
  return static_cast<const uint8_t*>(base) + bytes;
}
SPCCL_HOST_DEVICE uint8_t* At(void* base, uint64_t bytes) {
  return static_cast<uint8_t*>(base) + bytes;
}
SPCCL_HOST_DEVICE bool IsAligned16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

SPCCL_DEVICE uint32_t BitCount(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popc(static_cast<int>(word)));
#else
  return static_cast<uint32_t>(__builtin_popcount(word));
#endif
}
SPCCL_DEVICE uint32_t BitCount(uint64_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popcll(static_cast<long long>(word)));
#else
  return static_cast<uint32_t>(__builtin_popcountll(word));
#endif
}
// The lowest set bit of a word that has one.
SPCCL_DEVICE uint32_t LowestBit(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffs(static_cast<int>(word)) - 1);
#else
  return static_cast<uint32_t>(__builtin_ctz(word));
#endif
}
SPCCL_DEVICE uint32_t LowestBit(uint64_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffsll(static_cast<long long>(word)) - 1);
#else
  return static_cast<uint32_t>(__builtin_ctzll(word));
#endif
}
// The bits below bit `n` < 32.
SPCCL_DEVICE constexpr uint32_t BitsBelow(uint32_t n) {
  return (1u << n) - 1;
}

SPCCL_DEVICE uint64_t Smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

SPCCL_DEVICE float ToFloat(Half value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return Float16ToFloat(value.bits);
#endif
}
SPCCL_DEVICE float ToFloat(Brain value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
// To nearest, ties to even.
SPCCL_DEVICE Half ToHalf(float value) {
#if defined(__CUDA_ARCH__)
  Half narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
#else
  return {FloatToFloat16(value)};
#endif
}
SPCCL_DEVICE Brain ToBrain(float value) {
#if defined(__CUDA_ARCH__)
  Brain narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
  return narrow;
#else
  return {FloatToBfloat16(value)};
#endif
}

// Between storage type and a type to compute in; what is not a 16-bit float converts as C++ does.
template <class A, class T>
SPCCL_DEVICE A Widen(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    return static_cast<A>(ToFloat(value));
  } else {
    return static_cast<A>(value);
  }
}
template <class T, class A>
SPCCL_DEVICE T Narrow(A value) {
  if constexpr (std::is_same_v<T, Half>) {
    return ToHalf(value);
  } else if constexpr (std::is_same_v<T, Brain>) {
    return ToBrain(value);
  } else {
    return static_cast<T>(value);
  }
}

// a + b, made in SumOf<R> and kept as R. Integers are unsigned here, so that sums wrap.
template <class R, class T>
SPCCL_DEVICE R Sum(R a, T b) {
  using A = SumOf<R>;
  return Narrow<R>(static_cast<A>(Widen<A>(a) + Widen<A>(b)));
}

}  // namespace spccl::sparse
