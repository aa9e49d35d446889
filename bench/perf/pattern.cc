#include "bench/perf/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/status.h"

namespace spccl::bench {
namespace {

// 16-bit floats as the bits they are; values that occur are whole and below 256, or averages.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

double ToDouble(Half value) {
  const int exponent = (value.bits >> 10) & 31;
  const int mantissa = value.bits & 1023;
  const double sign = (value.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double ToDouble(Bfloat value) {
  const uint32_t wide = uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &wide, sizeof(result));
  return result;
}

double ToDouble(float value) {
  return value;
}
double ToDouble(double value) {
  return value;
}

template <typename T>
constexpr bool kIsFloat = !std::is_integral_v<T>;

// The inputs' values: -3 to 3.
template <typename T>
T FromSmall(int64_t value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>) {
    constexpr uint16_t kHalf[4] = {0, 0x3c00, 0x4000, 0x4200};
    constexpr uint16_t kBfloat[4] = {0, 0x3f80, 0x4000, 0x4040};
    const uint16_t magnitude =
        (std::is_same_v<T, Half> ? kHalf : kBfloat)[value < 0 ? -value : value];
    return T{static_cast<uint16_t>(magnitude | (value < 0 ? 0x8000 : 0))};
  } else {
    return static_cast<T>(value);
  }
}

// A unit in the last place, relative to the value.
double Ulp(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return std::ldexp(1, -10);
    case DType::kBfloat16:
      return std::ldexp(1, -7);
    case DType::kFloat32:
      return std::ldexp(1, -23);
    default:
      return std::ldexp(1, -52);
  }
}

// Calls `visit` with a null pointer to the type that holds `dtype`.
template <typename Visit>
auto WithType(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kInt8:
      return visit(static_cast<int8_t*>(nullptr));
    case DType::kUint8:
      return visit(static_cast<uint8_t*>(nullptr));
    case DType::kInt32:
      return visit(static_cast<int32_t*>(nullptr));
    case DType::kUint32:
      return visit(static_cast<uint32_t*>(nullptr));
    case DType::kInt64:
      return visit(static_cast<int64_t*>(nullptr));
    case DType::kUint64:
      return visit(static_cast<uint64_t*>(nullptr));
    case DType::kFloat16:
      return visit(static_cast<Half*>(nullptr));
    case DType::kBfloat16:
      return visit(static_cast<Bfloat*>(nullptr));
    case DType::kFloat32:
      return visit(static_cast<float*>(nullptr));
    case DType::kFloat64:
      break;
  }
  return visit(static_cast<double*>(nullptr));
}

// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators"), as a hash.
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

bool IsUnsigned(DType dtype) {
  return dtype == DType::kUint8 || dtype == DType::kUint32 || dtype == DType::kUint64;
}

}  // namespace

Pattern::Pattern(const Problem& problem, uint64_t seed, double sparsity, bool clustered)
    : problem_(problem), seed_(Mix(seed + 0x9e3779b97f4a7c15)), clustered_(clustered) {
  const auto bits = [](double share) {
    return static_cast<uint64_t>(std::llround(std::ldexp(share, 32)));
  };
  const double inside = clustered ? std::max(0.5, 1 - sparsity) : 1 - sparsity;  // density
  zero_below_ = bits(1 - inside);
  if (clustered) empty_below_ = bits(1 - (1 - sparsity) / inside);
  SPCCL_CHECK(problem.ranks <= kMaxRanks);
}

int64_t Pattern::ValueAt(uint32_t rank, uint64_t index) const {
  if (clustered_) {
    const uint64_t stretch = Mix(~seed_ + Mix(rank + 1) + index / kStretch);
    if ((stretch >> 32) < empty_below_) return 0;
  }
  const uint64_t random = Mix(seed_ + Mix(rank + 1) + index * 0x9e3779b97f4a7c15);
  if ((random >> 32) < zero_below_) return 0;
  int64_t magnitude;
  if (problem_.op.redop == RedOp::kProd && Reduces(problem_.op.kind)) {
    magnitude = index % problem_.ranks == rank ? 2 : 1;  // so that no product leaves the range
  } else {
    magnitude = 1 + static_cast<int64_t>(random & 0xffff) % 3;
  }
  const bool negative = ((random >> 16) & 1) != 0 && !IsUnsigned(problem_.op.dtype);
  return negative ? -magnitude : magnitude;
}

int64_t Pattern::ReducedAt(uint64_t index) const {
  int64_t result = ValueAt(0, index);
  for (uint32_t rank = 1; rank < problem_.ranks; ++rank) {
    const int64_t value = ValueAt(rank, index);
    switch (problem_.op.redop) {
      case RedOp::kSum:
      case RedOp::kAvg:
        result += value;
        break;
      case RedOp::kProd:
        result *= value;
        break;
      case RedOp::kMax:
        result = std::max(result, value);
        break;
      case RedOp::kMin:
        result = std::min(result, value);
        break;
    }
  }
  return result;
}

void Pattern::Fill(uint32_t rank, void* send) const {
  const uint64_t elements = SendElements(problem_.op, problem_.ranks);
  WithType(problem_.op.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* const out = static_cast<T*>(send);
    for (uint64_t i = 0; i < elements; ++i) out[i] = FromSmall<T>(ValueAt(rank, i));
  });
}

template <typename T>
uint64_t Pattern::CountWrongAs(uint32_t rank, const T* recv) const {
  const Operation& op = problem_.op;
  const uint64_t elements = RecvElements(op, problem_.ranks);
  const bool averages = Reduces(op.kind) && op.redop == RedOp::kAvg;
  const uint64_t shift = op.kind == Collective::kReduceScatter ? rank * op.count : 0;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < elements; ++i) {
    int64_t expected;
    if (op.kind == Collective::kAllGather) {
      expected = ValueAt(static_cast<uint32_t>(i / op.count), i % op.count);
    } else if (op.kind == Collective::kBroadcast) {
      expected = ValueAt(op.root, i);
    } else if (op.kind == Collective::kScatter) {
      expected = ValueAt(op.root, rank * op.count + i);
    } else {
      expected = ReducedAt(i + shift);
    }
    if constexpr (kIsFloat<T>) {
      const double exact =
          averages ? static_cast<double>(expected) / problem_.ranks : static_cast<double>(expected);
      const double tolerance = averages ? std::fabs(exact) * Ulp(op.dtype) : 0;
      wrong += !(std::fabs(ToDouble(recv[i]) - exact) <= tolerance);  // counts a NaN
    } else {
      // Integer sums wrap; averages truncate toward zero.
      const int64_t whole = averages ? expected / static_cast<int64_t>(problem_.ranks) : expected;
      wrong += recv[i] != static_cast<T>(whole);
    }
  }
  return wrong;
}

uint64_t Pattern::CountWrong(uint32_t rank, const void* recv) const {
  return WithType(problem_.op.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return CountWrongAs<T>(rank, static_cast<const T*>(recv));
  });
}

}  // namespace spccl::bench
