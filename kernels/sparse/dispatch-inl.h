// From dtypes known at run time to the types that kernels are made for.
#pragma once

#include "kernels/dtype.h"
#include "kernels/redop.h"
#include "kernels/sparse/dense-inl.h"

namespace spccl::sparse {

// Calls use.operator()<U>() with the unsigned type of the dtype's width.
template <class Use>
void WithWidth(DType dtype, Use use) {
  switch (SizeOf(dtype)) {
    case 1:
      return use.template operator()<uint8_t>();
    case 2:
      return use.template operator()<uint16_t>();
    case 4:
      return use.template operator()<uint32_t>();
    default:
      return use.template operator()<uint64_t>();
  }
}

// Calls use.operator()<T, R>() with the storage types of what is added and of the accumulator.
// Integer sums wrap, so both signs share the unsigned type.
template <class Use>
void WithSumTypes(DType dtype, DType accumulator, Use use) {
  const bool wide = accumulator != dtype;
  switch (dtype) {
    case DType::kInt8:
    case DType::kUint8:
      return use.template operator()<uint8_t, uint8_t>();
    case DType::kInt32:
    case DType::kUint32:
      return use.template operator()<uint32_t, uint32_t>();
    case DType::kInt64:
    case DType::kUint64:
      return use.template operator()<uint64_t, uint64_t>();
    case DType::kFloat32:
      return use.template operator()<float, float>();
    case DType::kFloat64:
      return use.template operator()<double, double>();
    case DType::kFloat16:
      return wide ? use.template operator()<Half, float>() : use.template operator()<Half, Half>();
    case DType::kBfloat16:
      return wide ? use.template operator()<Brain, float>()
                  : use.template operator()<Brain, Brain>();
  }
}

template <class Op, class Use>
void WithStorage(DType dtype, Use use) {
  // AccumulatorOf() of redop.h, as a type: an integer average is summed in 64 bits.
  constexpr bool kWide = std::is_same_v<Op, AvgOp>;
  switch (dtype) {
    case DType::kInt8:
      return use.template operator()<int8_t, std::conditional_t<kWide, int64_t, int8_t>, Op>();
    case DType::kUint8:
      return use.template operator()<uint8_t, std::conditional_t<kWide, uint64_t, uint8_t>, Op>();
    case DType::kInt32:
      return use.template operator()<int32_t, std::conditional_t<kWide, int64_t, int32_t>, Op>();
    case DType::kUint32:
      return use.template operator()<uint32_t, std::conditional_t<kWide, uint64_t, uint32_t>, Op>();
    case DType::kInt64:
      return use.template operator()<int64_t, int64_t, Op>();
    case DType::kUint64:
      return use.template operator()<uint64_t, uint64_t, Op>();
    case DType::kFloat16:
      return use.template operator()<Half, float, Op>();
    case DType::kFloat32:
      return use.template operator()<float, float, Op>();
    case DType::kFloat64:
      return use.template operator()<double, double, Op>();
    case DType::kBfloat16:
      return use.template operator()<Brain, float, Op>();
  }
}

// Calls use.operator()<T, A, Op>() with the storage type, the accumulator's and the operation.
template <class Use>
void WithReduction(DType dtype, RedOp op, Use use) {
  switch (op) {
    case RedOp::kSum:
      return WithStorage<SumOp>(dtype, use);
    case RedOp::kProd:
      return WithStorage<ProdOp>(dtype, use);
    case RedOp::kMax:
      return WithStorage<MaxOp>(dtype, use);
    case RedOp::kMin:
      return WithStorage<MinOp>(dtype, use);
    case RedOp::kAvg:
      return WithStorage<AvgOp>(dtype, use);
  }
}

}  // namespace spccl::sparse
