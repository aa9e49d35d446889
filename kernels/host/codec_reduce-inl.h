// Bodies of reduce-into: add the elements of a frame to a dense accumulator. T is the frame's
// storage type, R the accumulator's storage type, A the type the addition is made in.
#pragma once

#include "kernels/host/codec-inl.h"

namespace spccl::host {
namespace {

// accumulator[i] += values[i] where values[i] is not a zero; elements is a multiple of the lanes.
template <class S, class T, class R, class A>
SPCCL_INLINE void AddExpanded(const uint8_t* values, uint8_t* accumulator, uint64_t elements) {
  constexpr size_t kStep = kLanes<S, A>;
  for (uint64_t i = 0; i < elements; i += kStep) {
    const Vec<S, A> value = LoadAs<S, T, A>(values + i * sizeof(T));
    const Vec<S, A> old = LoadAs<S, R, A>(accumulator + i * sizeof(R));
    StoreAs<S, R, A>(accumulator + i * sizeof(R), old + value);
  }
}

template <class T, class R, class A>
SPCCL_INLINE void AddOne(const uint8_t* value, uint8_t* accumulator) {
  StoreOne<R, A>(accumulator, WrapAdd<A>(LoadOne<R, A>(accumulator), LoadOne<T, A>(value)));
}

template <class S, class T, class R, class A>
void ReducePiciAs(const ConstPiciSections& in, uint64_t elements, uint8_t* accumulator) {
  const uint8_t* values = in.values;
  for (uint64_t word_at = 0; word_at < TileCount(elements) * kTileWordCount; ++word_at) {
    uint64_t word = Load<uint64_t>(in.bitmap + 8 * word_at);
    for (; word != 0; word &= word - 1) {
      const uint64_t at = word_at * kWordElements + static_cast<uint64_t>(std::countr_zero(word));
      AddOne<T, R, A>(values, accumulator + at * sizeof(R));
      values += sizeof(T);
    }
  }
}

template <class S, class T, class R, class A>
void ReduceColumnAs(const ConstPiciSections& in, uint64_t elements, uint8_t* accumulator) {
  const uint8_t* values = in.values;
  for (uint64_t word_at = 0; word_at < TileCount(elements) * kTileWordCount; ++word_at) {
    uint64_t word = Load<uint64_t>(in.bitmap + 8 * word_at);
    const uint64_t tile = word_at / kTileWordCount;
    const uint64_t column = word_at % kTileWordCount;
    for (; word != 0; word &= word - 1) {
      const uint64_t row = static_cast<uint64_t>(std::countr_zero(word));
      const uint64_t at = tile * kTileElements + row * 64 + column;
      AddOne<T, R, A>(values, accumulator + at * sizeof(R));
      values += sizeof(T);
    }
  }
}

template <class S, class T, class R, class A>
void ReduceCooAs(const uint8_t* indices, const uint8_t* values, uint64_t nnz,
                 uint8_t* accumulator) {
  for (uint64_t i = 0; i < nnz; ++i) {
    const size_t at = Load<uint32_t>(indices + 4 * i);
    AddOne<T, R, A>(values + i * sizeof(T), accumulator + at * sizeof(R));
  }
}

template <class S, class T, class R, class A>
void ReduceDenseAs(const uint8_t* values, uint64_t elements, uint8_t* accumulator) {
  constexpr size_t kStep = kLanes<S, A>;
  const uint64_t whole = elements / kStep * kStep;
  AddExpanded<S, T, R, A>(values, accumulator, whole);
  for (uint64_t i = whole; i < elements; ++i) {
    AddOne<T, R, A>(values + i * sizeof(T), accumulator + i * sizeof(R));
  }
}

// Calls BODY<S, T, R, A>(args...) for the types that dtype and `wide` mean. Integer sums wrap, so
// both signs share the unsigned body.
#define SPCCL_REDUCE_DISPATCH(BODY, ...)                         \
  switch (dtype) {                                               \
    case DType::kInt8:                                           \
    case DType::kUint8:                                          \
      return BODY<S, uint8_t, uint8_t, uint8_t>(__VA_ARGS__);    \
    case DType::kInt32:                                          \
    case DType::kUint32:                                         \
      return BODY<S, uint32_t, uint32_t, uint32_t>(__VA_ARGS__); \
    case DType::kInt64:                                          \
    case DType::kUint64:                                         \
      return BODY<S, uint64_t, uint64_t, uint64_t>(__VA_ARGS__); \
    case DType::kFloat32:                                        \
      return BODY<S, float, float, float>(__VA_ARGS__);          \
    case DType::kFloat64:                                        \
      return BODY<S, double, double, double>(__VA_ARGS__);       \
    case DType::kFloat16:                                        \
      return wide ? BODY<S, Half, float, float>(__VA_ARGS__)     \
                  : BODY<S, Half, Half, float>(__VA_ARGS__);     \
    case DType::kBfloat16:                                       \
      return wide ? BODY<S, Brain, float, float>(__VA_ARGS__)    \
                  : BODY<S, Brain, Brain, float>(__VA_ARGS__);   \
  }

template <class S>
void ReducePici(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReducePiciAs, in, elements, accumulator)
}
template <class S>
void ReduceColumn(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                  uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceColumnAs, in, elements, accumulator)
}
template <class S>
void ReduceCoo(const uint8_t* indices, const uint8_t* values, uint64_t nnz, DType dtype, bool wide,
               uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceCooAs, indices, values, nnz, accumulator)
}
template <class S>
void ReduceDense(const uint8_t* values, DType dtype, bool wide, uint64_t elements,
                 uint8_t* accumulator) {
  SPCCL_REDUCE_DISPATCH(ReduceDenseAs, values, elements, accumulator)
}
#undef SPCCL_REDUCE_DISPATCH

}  // namespace
}  // namespace spccl::host
