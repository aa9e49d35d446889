#include "tests/support/collective_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/support/trusted_random.h"

namespace spccl::testing {

float FromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

uint16_t ToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7C00;  // rounds to or past infinity
  if (magnitude == 0) return sign;
  // The spacing of halves around the value; nearbyint rounds to even.
  const int exponent = std::max(std::ilogb(magnitude), -14);
  const double steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  // steps is below 1024 for subnormals; a carry to 2048 moves the exponent up by itself.
  const int biased = exponent + 14;
  return static_cast<uint16_t>(sign + (biased << 10) + static_cast<int>(steps));
}

namespace {

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

template <typename T>
struct Traits {
  using Accumulator = T;
  static T Widen(T value) { return value; }
  static T Narrow(T value) { return value; }
};
template <>
struct Traits<Half> {
  using Accumulator = float;
  static float Widen(Half value) { return FromHalf(value.bits); }
  static Half Narrow(float value) { return {ToHalf(value)}; }
};
template <>
struct Traits<Brain> {
  using Accumulator = float;
  static float Widen(Brain value) { return FromBfloat16(value.bits); }
  static Brain Narrow(float value) { return {ToBfloat16(value)}; }
};

// std::uniform_real_distribution takes two logarithms a number.
bool Happens(double probability, TrustedRandom* random) {
  return static_cast<double>((*random)() >> 11) * 0x1p-53 < probability;
}

template <typename F>
auto Dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt8:
      return f(int8_t{});
    case DType::kUint8:
      return f(uint8_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kUint32:
      return f(uint32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kUint64:
      return f(uint64_t{});
    case DType::kFloat16:
      return f(Half{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kBfloat16:
      break;
  }
  return f(Brain{});
}

template <typename T>
T Load(const Bytes& data, uint64_t element) {
  T value;
  std::memcpy(&value, data.data() + element * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(Bytes* data, uint64_t element, T value) {
  std::memcpy(data->data() + element * sizeof(T), &value, sizeof(T));
}

template <typename A>
A Combine(RedOp op, A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    // Products of narrow types would be made in int: 64 bits, then cut, wraps as it must.
    if (op == RedOp::kProd) return static_cast<A>(static_cast<uint64_t>(U(a)) * U(b));
    if (op == RedOp::kSum || op == RedOp::kAvg) return static_cast<A>(U(a) + U(b));
  } else {
    if (op == RedOp::kProd) return a * b;
    if (op == RedOp::kSum || op == RedOp::kAvg) return a + b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
  }
  return op == RedOp::kMax ? std::max(a, b) : std::min(a, b);
}

template <typename T>
T ReduceElement(RedOp op, const std::vector<Bytes>& send, uint64_t element, uint32_t first) {
  using Wide = typename Traits<T>::Accumulator;
  const auto fold = [&](auto zero) {
    using A = decltype(zero);
    const uint32_t ranks = static_cast<uint32_t>(send.size());
    A sum = static_cast<A>(Traits<T>::Widen(Load<T>(send[first], element)));
    for (uint32_t i = 1; i < ranks; ++i) {
      const T value = Load<T>(send[(first + i) % ranks], element);
      sum = Combine<A>(op, sum, static_cast<A>(Traits<T>::Widen(value)));
    }
    if (op == RedOp::kAvg) sum = static_cast<A>(sum / static_cast<A>(ranks));
    return Traits<T>::Narrow(static_cast<Wide>(sum));
  };
  if constexpr (std::is_integral_v<T>) {
    if (op == RedOp::kAvg) {
      return fold(std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>{});
    }
  }
  return fold(Wide{});
}

template <typename T>
Bytes ReduceAll(const OpDesc& op, const std::vector<Bytes>& send, const FirstRank& first_rank) {
  Bytes result(send[0].size());
  for (uint64_t i = 0; i < result.size() / sizeof(T); ++i) {
    Store<T>(&result, i, ReduceElement<T>(op.redop, send, i, first_rank ? first_rank(i) : 0));
  }
  return result;
}

template <typename T>
bool Same(T a, T b) {
  const auto x = Traits<T>::Widen(a);
  const auto y = Traits<T>::Widen(b);
  return x == y || (x != x && y != y);
}

template <typename T>
T Special(uint64_t which) {
  using A = typename Traits<T>::Accumulator;
  if constexpr (std::is_integral_v<T>) {
    return which % 2 == 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
  } else if constexpr (sizeof(T) == 2) {
    return T{static_cast<uint16_t>(which % 2 == 0 ? 0x0001 : 0x8003)};  // subnormals
  } else {
    const A all[] = {std::numeric_limits<A>::infinity(), -std::numeric_limits<A>::infinity(),
                     std::numeric_limits<A>::quiet_NaN(), std::numeric_limits<A>::denorm_min()};
    return Traits<T>::Narrow(all[which % 4]);
  }
}

template <typename T>
T RandomNonzero(TrustedRandom* random) {
  if constexpr (std::is_integral_v<T>) {
    const T value = static_cast<T>((*random)());
    return value == 0 ? T{1} : value;
  } else {
    using A = typename Traits<T>::Accumulator;
    const A magnitude = A(0.25) + static_cast<A>((*random)() % 1000) / A(700);
    return Traits<T>::Narrow((*random)() % 2 == 0 ? magnitude : -magnitude);
  }
}

// Each rank's part of the whole.
std::vector<Bytes> Shares(const OpDesc& op, const Bytes& whole, size_t ranks) {
  std::vector<Bytes> shares;
  const size_t share = op.count * SizeOf(op.dtype);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = whole.begin() + static_cast<ptrdiff_t>(rank * share);
    shares.emplace_back(begin, begin + static_cast<ptrdiff_t>(share));
  }
  return shares;
}

}  // namespace

std::vector<Bytes> CollectiveOracle(const OpDesc& op, const std::vector<Bytes>& send,
                                    const FirstRank& first_rank) {
  const size_t ranks = send.size();
  if (op.kind == OpKind::kBroadcast) return std::vector<Bytes>(ranks, send[op.root]);
  if (op.kind == OpKind::kScatter) return Shares(op, send[op.root], ranks);
  if (op.kind == OpKind::kAllGather) {
    Bytes all;
    for (const Bytes& one : send) all.insert(all.end(), one.begin(), one.end());
    return std::vector<Bytes>(ranks, all);
  }
  const Bytes reduced = Dispatch(
      op.dtype, [&](auto zero) { return ReduceAll<decltype(zero)>(op, send, first_rank); });
  if (op.kind == OpKind::kAllReduce) return std::vector<Bytes>(ranks, reduced);
  return Shares(op, reduced, ranks);
}

std::optional<uint64_t> FirstDifference(DType dtype, const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return std::min(a.size(), b.size()) / SizeOf(dtype);
  return Dispatch(dtype, [&](auto zero) -> std::optional<uint64_t> {
    using T = decltype(zero);
    for (uint64_t i = 0; i < a.size() / sizeof(T); ++i) {
      if (!Same<T>(Load<T>(a, i), Load<T>(b, i))) return i;
    }
    return std::nullopt;
  });
}

Bytes RandomElements(DType dtype, uint64_t elements, double sparsity, bool specials,
                     std::mt19937_64* seeds) {
  Bytes data(elements * SizeOf(dtype));
  TrustedRandom random(*seeds);
  Dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (uint64_t i = 0; i < elements; ++i) {
      T value = RandomNonzero<T>(&random);
      if (specials && random() % 16 == 0) value = Special<T>(random());
      if (Happens(sparsity, &random)) {
        value = T{};
        if constexpr (!std::is_integral_v<T>) {
          if (random() % 4 == 0) value = Traits<T>::Narrow(-0.0F);
        }
      }
      Store<T>(&data, i, value);
    }
    return 0;
  });
  return data;
}

Bytes ExactElements(DType dtype, uint64_t elements, double sparsity, bool prod, bool specials,
                    std::mt19937_64* seeds) {
  if (!IsFloat(dtype)) return RandomElements(dtype, elements, sparsity, false, seeds);
  constexpr float kFactors[] = {1, -1, 2, -2, 0.5};
  constexpr float kSpecials[] = {INFINITY, -INFINITY, NAN};
  Bytes data(elements * SizeOf(dtype));
  TrustedRandom random(*seeds);
  Dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      for (uint64_t i = 0; i < elements; ++i) {
        const uint64_t draw = random();
        float value = prod ? kFactors[draw % 5] : static_cast<float>(draw % 17) - 8;
        if (specials && draw / 64 % 32 == 0) value = kSpecials[draw / 4096 % 3];
        if (Happens(sparsity, &random)) value = draw % 2 == 0 ? 0.0F : -0.0F;
        Store<T>(&data, i, Traits<T>::Narrow(value));
      }
    }
    return 0;
  });
  return data;
}

uint64_t OracleNonzeros(DType dtype, const Bytes& data) {
  return Dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    uint64_t count = 0;
    for (uint64_t i = 0; i < data.size() / sizeof(T); ++i) {
      if (Traits<T>::Widen(Load<T>(data, i)) != 0) ++count;
    }
    return count;
  });
}

}  // namespace spccl::testing
