// From dtype and reduction to the body's types: the functions that a target's table points to.
#pragma once

#include "kernels/host/dense-inl.h"

namespace spccl::host {
namespace {

template <class S, class T, class A>
void ReduceByOp(RedOp op, const ReduceCall& call) {
  switch (op) {
    case RedOp::kSum:
      return ReduceAs<S, T, A, SumOp>(call);
    case RedOp::kProd:
      return ReduceAs<S, T, A, ProdOp>(call);
    case RedOp::kMax:
      return ReduceAs<S, T, A, MaxOp>(call);
    case RedOp::kMin:
      return ReduceAs<S, T, A, MinOp>(call);
    case RedOp::kAvg:
      if constexpr (kIsFloat<T>) return ReduceAs<S, T, A, AvgOp>(call);
      break;
  }
}

// Integer averages are summed in 64 bits (see AccumulatorOf).
template <class S>
void ReduceIntegerAverage(DType dtype, const ReduceCall& call) {
  switch (dtype) {
    case DType::kInt8:
      return ReduceAs<S, int8_t, int64_t, AvgOp>(call);
    case DType::kInt32:
      return ReduceAs<S, int32_t, int64_t, AvgOp>(call);
    case DType::kInt64:
      return ReduceAs<S, int64_t, int64_t, AvgOp>(call);
    case DType::kUint8:
      return ReduceAs<S, uint8_t, uint64_t, AvgOp>(call);
    case DType::kUint32:
      return ReduceAs<S, uint32_t, uint64_t, AvgOp>(call);
    case DType::kUint64:
      return ReduceAs<S, uint64_t, uint64_t, AvgOp>(call);
    default:
      return;
  }
}

template <class S>
void ReduceAny(DType dtype, RedOp op, const ReduceCall& call) {
  if (op == RedOp::kAvg && !IsFloat(dtype)) return ReduceIntegerAverage<S>(dtype, call);
  switch (dtype) {
    case DType::kInt8:
      return ReduceByOp<S, int8_t, int8_t>(op, call);
    case DType::kUint8:
      return ReduceByOp<S, uint8_t, uint8_t>(op, call);
    case DType::kInt32:
      return ReduceByOp<S, int32_t, int32_t>(op, call);
    case DType::kUint32:
      return ReduceByOp<S, uint32_t, uint32_t>(op, call);
    case DType::kInt64:
      return ReduceByOp<S, int64_t, int64_t>(op, call);
    case DType::kUint64:
      return ReduceByOp<S, uint64_t, uint64_t>(op, call);
    case DType::kFloat16:
      return ReduceByOp<S, Half, float>(op, call);
    case DType::kBfloat16:
      return ReduceByOp<S, Brain, float>(op, call);
    case DType::kFloat32:
      return ReduceByOp<S, float, float>(op, call);
    case DType::kFloat64:
      return ReduceByOp<S, double, double>(op, call);
  }
}

// To another type only the 16-bit floats and the integer averages widen; all others are copied.
template <class S>
void WidenAny(DType dtype, DType accumulator_dtype, const uint8_t* input, uint8_t* accumulator,
              uint64_t elements) {
  if (dtype == accumulator_dtype) {
    if (input != accumulator) __builtin_memcpy(accumulator, input, elements * SizeOf(dtype));
    return;
  }
  switch (dtype) {
    case DType::kFloat16:
      return WidenAs<S, Half, float>(input, accumulator, elements);
    case DType::kBfloat16:
      return WidenAs<S, Brain, float>(input, accumulator, elements);
    case DType::kInt8:
      return WidenAs<S, int8_t, int64_t>(input, accumulator, elements);
    case DType::kUint8:
      return WidenAs<S, uint8_t, uint64_t>(input, accumulator, elements);
    case DType::kInt32:
      return WidenAs<S, int32_t, int64_t>(input, accumulator, elements);
    case DType::kUint32:
      return WidenAs<S, uint32_t, uint64_t>(input, accumulator, elements);
    default:
      return;
  }
}

template <class S, class A>
void AccumulateByOp(RedOp op, const uint8_t* partial, uint8_t* accumulator, uint64_t elements) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kAvg:
      return AccumulateAs<S, A, SumOp>(partial, accumulator, elements);
    case RedOp::kProd:
      return AccumulateAs<S, A, ProdOp>(partial, accumulator, elements);
    case RedOp::kMax:
      return AccumulateAs<S, A, MaxOp>(partial, accumulator, elements);
    case RedOp::kMin:
      return AccumulateAs<S, A, MinOp>(partial, accumulator, elements);
  }
}

template <class S>
void AccumulateAny(DType accumulator_dtype, RedOp op, const uint8_t* partial, uint8_t* accumulator,
                   uint64_t elements) {
  switch (accumulator_dtype) {
    case DType::kInt8:
      return AccumulateByOp<S, int8_t>(op, partial, accumulator, elements);
    case DType::kUint8:
      return AccumulateByOp<S, uint8_t>(op, partial, accumulator, elements);
    case DType::kInt32:
      return AccumulateByOp<S, int32_t>(op, partial, accumulator, elements);
    case DType::kUint32:
      return AccumulateByOp<S, uint32_t>(op, partial, accumulator, elements);
    case DType::kInt64:
      return AccumulateByOp<S, int64_t>(op, partial, accumulator, elements);
    case DType::kUint64:
      return AccumulateByOp<S, uint64_t>(op, partial, accumulator, elements);
    case DType::kFloat32:
      return AccumulateByOp<S, float>(op, partial, accumulator, elements);
    case DType::kFloat64:
      return AccumulateByOp<S, double>(op, partial, accumulator, elements);
    case DType::kFloat16:
    case DType::kBfloat16:
      return;  // never an accumulator
  }
}

template <class S>
void FinishAverage(DType dtype, const uint8_t* accumulator, uint8_t* output, uint64_t elements,
                   uint32_t ranks) {
  switch (dtype) {
    case DType::kInt8:
      return FinishAs<S, int8_t, int64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kUint8:
      return FinishAs<S, uint8_t, uint64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kInt32:
      return FinishAs<S, int32_t, int64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kUint32:
      return FinishAs<S, uint32_t, uint64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kInt64:
      return FinishAs<S, int64_t, int64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kUint64:
      return FinishAs<S, uint64_t, uint64_t, AvgOp>(accumulator, output, elements, ranks);
    case DType::kFloat16:
      return FinishAs<S, Half, float, AvgOp>(accumulator, output, elements, ranks);
    case DType::kBfloat16:
      return FinishAs<S, Brain, float, AvgOp>(accumulator, output, elements, ranks);
    case DType::kFloat32:
      return FinishAs<S, float, float, AvgOp>(accumulator, output, elements, ranks);
    case DType::kFloat64:
      return FinishAs<S, double, double, AvgOp>(accumulator, output, elements, ranks);
  }
}

template <class S>
void FinishAny(DType dtype, RedOp op, const uint8_t* accumulator, uint8_t* output,
               uint64_t elements, uint32_t ranks) {
  if (op == RedOp::kAvg) return FinishAverage<S>(dtype, accumulator, output, elements, ranks);
  if (dtype == DType::kFloat16) {
    return FinishAs<S, Half, float, SumOp>(accumulator, output, elements, ranks);
  }
  if (dtype == DType::kBfloat16) {
    return FinishAs<S, Brain, float, SumOp>(accumulator, output, elements, ranks);
  }
  if (output != accumulator) __builtin_memcpy(output, accumulator, elements * SizeOf(dtype));
}

}  // namespace
}  // namespace spccl::host
