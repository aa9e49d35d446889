// Reductions, with NCCL's codes, and the type that partial results are kept in.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"

namespace spccl {

enum class RedOp : uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr int kRedOpCount = 5;

constexpr bool IsValidRedOp(uint32_t code) {
  return code < kRedOpCount;
}

constexpr std::string_view NameOf(RedOp op) {
  constexpr std::string_view kNames[kRedOpCount] = {"sum", "prod", "max", "min", "avg"};
  return kNames[static_cast<int>(op)];
}

// The type of partial results. 16-bit floats are accumulated in float32 and rounded once, at the
// end; integer averages are summed in 64 bits, so that the sum of narrow integers cannot wrap
// before the division (which truncates toward zero). All others accumulate in their own type:
// integer sums and products wrap.
constexpr DType AccumulatorOf(DType dtype, RedOp op) {
  if (dtype == DType::kFloat16 || dtype == DType::kBfloat16) return DType::kFloat32;
  if (op == RedOp::kAvg && !IsFloat(dtype)) {
    const bool is_signed =
        dtype == DType::kInt8 || dtype == DType::kInt32 || dtype == DType::kInt64;
    return is_signed ? DType::kInt64 : DType::kUint64;
  }
  return dtype;
}

// Whether leaving zeros out of a partial result leaves the result unchanged: the identity is zero
// and what is divided at the end is not an integer.
constexpr bool SparsityPays(DType dtype, RedOp op) {
  return op == RedOp::kSum || (op == RedOp::kAvg && IsFloat(dtype));
}

}  // namespace spccl
