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

template <class T>
SPCCL_INLINE const uint8_t* InputAt(const ReduceCall& call, size_t r, uint64_t i) {
  return static_cast<const uint8_t*>(call.inputs[r]) + i * sizeof(T);
}
template <class T>
SPCCL_INLINE uint8_t* OutputAt(const ReduceCall& call, size_t j, uint64_t i) {
  return static_cast<uint8_t*>(call.outputs[j]) + i * sizeof(T);
}

// Elements [begin, end) one by one: the ends that are shorter than a block.
template <class T, class A, class Op>
SPCCL_INLINE void ReduceEnds(const ReduceCall& call, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) {
    A value = LoadOne<T, A>(InputAt<T>(call, 0, i));
    for (size_t r = 1; r < call.input_count; ++r) {
      value = Op::template CombineOne<A>(value, LoadOne<T, A>(InputAt<T>(call, r, i)));
    }
    if constexpr (Op::kDivides) value = value / static_cast<A>(call.input_count);
    for (size_t j = 0; j < call.output_count; ++j) StoreOne<T, A>(OutputAt<T>(call, j, i), value);
  }
}

// A block is what four vectors of the storage type hold.
template <class S, class T>
inline constexpr uint64_t kBlockElements = 4 * S::kBytes / sizeof(T);
template <class S, class T, class A>
inline constexpr size_t kBlockVectors = kBlockElements<S, T> / kLanes<S, A>;

// Which outputs to stream to: those that are no inputs (whose lines are in the cache anyway).
inline uint64_t StreamedOutputs(const ReduceCall& call) {
  uint64_t streamed = 0;
  for (size_t j = 0; call.streaming && j < call.output_count && j < 64; ++j) {
    bool in_place = false;
    for (size_t r = 0; r < call.input_count; ++r) in_place |= call.inputs[r] == call.outputs[j];
    if (!in_place) streamed |= uint64_t{1} << j;
  }
  return streamed;
}

// Writes a finished block to every output.
template <class S, class T, class A>
SPCCL_INLINE void WriteBlock(const ReduceCall& call, uint64_t streamed, uint64_t i,
                             const Vec<S, A> (&block)[kBlockVectors<S, T, A>]) {
  using V = Vec<S, uint64_t>;
  V lines[4];
  if constexpr (std::is_same_v<T, A>) {
    for (size_t k = 0; k < 4; ++k) lines[k] = reinterpret_cast<V>(block[k]);
  } else {
    for (size_t k = 0; k < kBlockVectors<S, T, A>; ++k) {
      StoreAs<S, T, A>(reinterpret_cast<uint8_t*>(lines) + k * kLanes<S, A> * sizeof(T), block[k]);
    }
  }
  for (size_t j = 0; j < call.output_count; ++j) {
    uint8_t* to = OutputAt<T>(call, j, i);
    const bool aligned = reinterpret_cast<uintptr_t>(to) % S::kBytes == 0;
    if (j < 64 && ((streamed >> j) & 1) != 0 && aligned) {
      for (size_t k = 0; k < 4; ++k) S::StreamStore(to + k * S::kBytes, lines[k]);
    } else {
      for (size_t k = 0; k < 4; ++k) Store(to + k * S::kBytes, lines[k]);
    }
  }
}

// Blocks of elements from `begin` on, of exactly kInputs inputs; returns where it ended.
template <class S, class T, class A, class Op, size_t kInputs>
uint64_t ReduceDirect(const ReduceCall& call, uint64_t streamed, uint64_t begin) {
  constexpr size_t kStep = kLanes<S, A>;
  constexpr uint64_t kBlock = kBlockElements<S, T>;
  uint64_t i = begin;
  for (; i + kBlock <= call.elements; i += kBlock) {
    Vec<S, A> block[kBlockVectors<S, T, A>];
    for (size_t r = 0; r < kInputs; ++r) PrefetchAhead<kBlock * sizeof(T)>(InputAt<T>(call, r, i));
    for (size_t k = 0; k < kBlockVectors<S, T, A>; ++k) {
      Vec<S, A> value = LoadAs<S, T, A>(InputAt<T>(call, 0, i + k * kStep));
      for (size_t r = 1; r < kInputs; ++r) {
        value =
            Op::template Combine<S, A>(value, LoadAs<S, T, A>(InputAt<T>(call, r, i + k * kStep)));
      }
      block[k] = FinishVec<S, A, Op>(value, static_cast<A>(kInputs));
    }
    WriteBlock<S, T, A>(call, streamed, i, block);
  }
  return i;
}

// The same for any number of inputs: a run of blocks at a time is kept in the L1 cache while one
// input after the other is combined into it, so that each is read in long sequential pieces.
template <class S, class T, class A, class Op>
uint64_t ReduceMany(const ReduceCall& call, uint64_t streamed, uint64_t begin) {
  constexpr size_t kStep = kLanes<S, A>;
  constexpr uint64_t kBlock = kBlockElements<S, T>;
  constexpr size_t kRunBlocks = 8192 / sizeof(A) / kBlock > 0 ? 8192 / sizeof(A) / kBlock : 1;
  constexpr size_t kVectors = kBlockVectors<S, T, A>;
  Vec<S, A> run[kRunBlocks][kVectors];
  uint64_t i = begin;
  while (i + kBlock <= call.elements) {
    const uint64_t left = (call.elements - i) / kBlock;
    const size_t blocks = left < kRunBlocks ? left : kRunBlocks;
    for (size_t v = 0; v < blocks * kVectors; ++v) {
      run[v / kVectors][v % kVectors] = LoadAs<S, T, A>(InputAt<T>(call, 0, i + v * kStep));
    }
    for (size_t r = 1; r < call.input_count; ++r) {
      for (size_t v = 0; v < blocks * kVectors; ++v) {
        Vec<S, A>& sum = run[v / kVectors][v % kVectors];
        sum = Op::template Combine<S, A>(sum, LoadAs<S, T, A>(InputAt<T>(call, r, i + v * kStep)));
      }
    }
    for (size_t b = 0; b < blocks; ++b, i += kBlock) {
      for (size_t k = 0; k < kVectors; ++k) {
        run[b][k] = FinishVec<S, A, Op>(run[b][k], static_cast<A>(call.input_count));
      }
      WriteBlock<S, T, A>(call, streamed, i, run[b]);
    }
  }
  return i;
}

// Elements before the first output is aligned for streaming.
template <class S, class T>
SPCCL_INLINE uint64_t UnalignedHead(const ReduceCall& call) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(call.outputs[0]) % S::kBytes;
  if (!call.streaming || past == 0 || past % sizeof(T) != 0) return 0;
  const uint64_t head = (S::kBytes - past) / sizeof(T);
  return head < call.elements ? head : call.elements;
}

template <class S, class T, class A, class Op>
void ReduceAs(const ReduceCall& call) {
  if (call.output_count == 0) return;
  const uint64_t streamed = StreamedOutputs(call);
  const uint64_t head = UnalignedHead<S, T>(call);
  ReduceEnds<T, A, Op>(call, 0, head);
  uint64_t done;
  switch (call.input_count) {
    case 2:
      done = ReduceDirect<S, T, A, Op, 2>(call, streamed, head);
      break;
    case 3:
      done = ReduceDirect<S, T, A, Op, 3>(call, streamed, head);
      break;
    case 4:
      done = ReduceDirect<S, T, A, Op, 4>(call, streamed, head);
      break;
    default:
      done = ReduceMany<S, T, A, Op>(call, streamed, head);
      break;
  }
  ReduceEnds<T, A, Op>(call, done, call.elements);
  if (streamed != 0) S::Fence();
}

// In pieces that stay in the L1 cache, so that the input is read from memory once.
template <class S>
void Copy(const uint8_t* input, void* const* outputs, size_t output_count, uint64_t bytes,
          bool streaming) {
  constexpr uint64_t kPiece = 16384;
  for (uint64_t at = 0; at < bytes; at += kPiece) {
    const uint64_t size = bytes - at < kPiece ? bytes - at : kPiece;
    bool far = true;
    for (size_t j = 0; j < output_count; ++j) {
      if (outputs[j] == input) continue;
      uint8_t* const to = static_cast<uint8_t*>(outputs[j]) + at;
      if (far) {
        CopyOut<S, true>(input + at, to, size, streaming);
      } else {
        CopyOut<S>(input + at, to, size, streaming);
      }
      far = false;
    }
  }
  if (streaming) S::Fence();
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
