// Bodies of the dense kernels, one source for every target S. T is the storage type, A the
// accumulator's, Op the reduction.
#pragma once

#include "kernels/host/simd_common-inl.h"

namespace spccl::host {
namespace {

// Reductions of vectors and of single elements. A number wins over a NaN in max and min, as in
// C's fmax; of two that compare equal the first stays.
template <class V>
SPCCL_INLINE V Select(const V& mask_of_ones, const V& yes, const V& no) {
  return (mask_of_ones & yes) | (~mask_of_ones & no);
}

template <class S, class A>
SPCCL_INLINE Vec<S, A> Pick(const Vec<S, Unsigned<A>>& take_b, const Vec<S, A>& a,
                            const Vec<S, A>& b) {
  using Bits = Vec<S, Unsigned<A>>;
  return reinterpret_cast<Vec<S, A>>(
      Select<Bits>(take_b, reinterpret_cast<Bits>(b), reinterpret_cast<Bits>(a)));
}

struct SumOp {
  static constexpr bool kDivides = false;
  template <class S, class A>
  static SPCCL_INLINE Vec<S, A> Combine(const Vec<S, A>& a, const Vec<S, A>& b) {
    if constexpr (std::is_floating_point_v<A>) {
      return a + b;
    } else {
      using Bits = Vec<S, Unsigned<A>>;
      return reinterpret_cast<Vec<S, A>>(reinterpret_cast<Bits>(a) + reinterpret_cast<Bits>(b));
    }
  }
  template <class A>
  static SPCCL_INLINE A CombineOne(A a, A b) {
    return WrapAdd<A>(a, b);
  }
};

// A sum that Finish divides by the number of ranks.
struct AvgOp : SumOp {
  static constexpr bool kDivides = true;
};

struct ProdOp {
  static constexpr bool kDivides = false;
  template <class S, class A>
  static SPCCL_INLINE Vec<S, A> Combine(const Vec<S, A>& a, const Vec<S, A>& b) {
    if constexpr (std::is_floating_point_v<A>) {
      return a * b;
    } else {
      using Bits = Vec<S, Unsigned<A>>;
      return reinterpret_cast<Vec<S, A>>(reinterpret_cast<Bits>(a) * reinterpret_cast<Bits>(b));
    }
  }
  template <class A>
  static SPCCL_INLINE A CombineOne(A a, A b) {
    return WrapMul<A>(a, b);
  }
};

struct MaxOp {
  static constexpr bool kDivides = false;
  template <class S, class A>
  static SPCCL_INLINE Vec<S, A> Combine(const Vec<S, A>& a, const Vec<S, A>& b) {
    using Bits = Vec<S, Unsigned<A>>;
    Bits take_b = reinterpret_cast<Bits>(b > a);
    if constexpr (std::is_floating_point_v<A>) take_b |= reinterpret_cast<Bits>(a != a);
    return Pick<S, A>(take_b, a, b);
  }
  template <class A>
  static SPCCL_INLINE A CombineOne(A a, A b) {
    return b > a || a != a ? b : a;
  }
};

struct MinOp {
  static constexpr bool kDivides = false;
  template <class S, class A>
  static SPCCL_INLINE Vec<S, A> Combine(const Vec<S, A>& a, const Vec<S, A>& b) {
    using Bits = Vec<S, Unsigned<A>>;
    Bits take_b = reinterpret_cast<Bits>(b < a);
    if constexpr (std::is_floating_point_v<A>) take_b |= reinterpret_cast<Bits>(a != a);
    return Pick<S, A>(take_b, a, b);
  }
  template <class A>
  static SPCCL_INLINE A CombineOne(A a, A b) {
    return b < a || a != a ? b : a;
  }
};

template <class S, class A, class Op>
SPCCL_INLINE Vec<S, A> FinishVec(const Vec<S, A>& sum, A ranks) {
  if constexpr (Op::kDivides) {
    return sum / ranks;  // integers: truncates toward zero
  } else {
    return sum;
  }
}

// Ops of one element, for the ends that are shorter than a vector.
template <class T, class A, class Op>
SPCCL_INLINE void ReduceOne(const ReduceCall& call, uint64_t i) {
  const auto input = [&call, i ](size_t r) __attribute__((always_inline)) {
    return LoadOne<T, A>(static_cast<const uint8_t*>(call.inputs[r]) + i * sizeof(T));
  };
  A value = input(0);
  for (size_t r = 1; r < call.input_count; ++r) {
    value = Op::template CombineOne<A>(value, input(r));
  }
  if constexpr (Op::kDivides) value = value / static_cast<A>(call.input_count);
  for (size_t j = 0; j < call.output_count; ++j) {
    StoreOne<T, A>(static_cast<uint8_t*>(call.outputs[j]) + i * sizeof(T), value);
  }
}

template <class S, class T, class A, class Op>
void ReduceAs(const ReduceCall& call) {
  constexpr size_t kStep = kLanes<S, A>;
  uint64_t i = 0;
  for (; i + kStep <= call.elements; i += kStep) {
    const size_t at = i * sizeof(T);
    Vec<S, A> value = LoadAs<S, T, A>(static_cast<const uint8_t*>(call.inputs[0]) + at);
    for (size_t r = 1; r < call.input_count; ++r) {
      value = Op::template Combine<S, A>(
          value, LoadAs<S, T, A>(static_cast<const uint8_t*>(call.inputs[r]) + at));
    }
    value = FinishVec<S, A, Op>(value, static_cast<A>(call.input_count));
    for (size_t j = 0; j < call.output_count; ++j) {
      StoreAs<S, T, A>(static_cast<uint8_t*>(call.outputs[j]) + at, value);
    }
  }
  for (; i < call.elements; ++i) ReduceOne<T, A, Op>(call, i);
}

template <class S>
void Copy(const uint8_t* input, void* const* outputs, size_t output_count, uint64_t bytes,
          bool streaming) {
  for (size_t j = 0; j < output_count; ++j) {
    if (outputs[j] != input) __builtin_memcpy(outputs[j], input, bytes);
  }
}

template <class S, class T, class A>
void WidenAs(const uint8_t* input, uint8_t* accumulator, uint64_t elements) {
  constexpr size_t kStep = kLanes<S, A>;
  uint64_t i = 0;
  for (; i + kStep <= elements; i += kStep) {
    Store(accumulator + i * sizeof(A), LoadAs<S, T, A>(input + i * sizeof(T)));
  }
  for (; i < elements; ++i) {
    Store(accumulator + i * sizeof(A), LoadOne<T, A>(input + i * sizeof(T)));
  }
}

template <class S, class A, class Op>
void AccumulateAs(const uint8_t* partial, uint8_t* accumulator, uint64_t elements) {
  constexpr size_t kStep = kLanes<S, A>;
  uint64_t i = 0;
  for (; i + kStep <= elements; i += kStep) {
    const size_t at = i * sizeof(A);
    Store(accumulator + at, Op::template Combine<S, A>(Load<Vec<S, A>>(accumulator + at),
                                                       Load<Vec<S, A>>(partial + at)));
  }
  for (; i < elements; ++i) {
    const size_t at = i * sizeof(A);
    Store(accumulator + at,
          Op::template CombineOne<A>(Load<A>(accumulator + at), Load<A>(partial + at)));
  }
}

template <class S, class T, class A, class Op>
void FinishAs(const uint8_t* accumulator, uint8_t* output, uint64_t elements, uint32_t ranks) {
  constexpr size_t kStep = kLanes<S, A>;
  uint64_t i = 0;
  for (; i + kStep <= elements; i += kStep) {
    const Vec<S, A> sum = Load<Vec<S, A>>(accumulator + i * sizeof(A));
    StoreAs<S, T, A>(output + i * sizeof(T), FinishVec<S, A, Op>(sum, static_cast<A>(ranks)));
  }
  for (; i < elements; ++i) {
    A value = Load<A>(accumulator + i * sizeof(A));
    if constexpr (Op::kDivides) value = value / static_cast<A>(ranks);
    StoreOne<T, A>(output + i * sizeof(T), value);
  }
}

}  // namespace
}  // namespace spccl::host
