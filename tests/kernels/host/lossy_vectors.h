// Vectors for the tests of lossy formats, and their frames.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/host/codec.h"

namespace spccl {

using Bytes = std::vector<uint8_t>;

template <class T>
inline constexpr DType kTypeOf = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;

template <class T>
T AnyBits(std::mt19937_64& rng) {
  using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<U>(rng()));
}

// Vectors that are smooth, wild, rough, sparse, subnormal, at halves of a quantum, and mixed.
template <class T>
std::vector<T> Vector(int kind, uint64_t elements, std::mt19937_64& rng) {
  std::vector<T> x(elements);
  std::normal_distribution<double> noise;
  const double scale = std::exp2(static_cast<int>(rng() % 120) - 60);
  for (uint64_t i = 0; i < elements; ++i) {
    const double smooth = std::sin(static_cast<double>(i) / 30) + 0.01 * noise(rng);
    switch (kind) {
      case 0:
        x[i] = static_cast<T>(smooth * scale);
        break;
      case 1:
        x[i] = AnyBits<T>(rng);
        break;
      case 2:
        x[i] = static_cast<T>(noise(rng));
        break;
      case 3:
        x[i] = rng() % 20 == 0 ? static_cast<T>(noise(rng)) : T{0};
        break;
      case 4:
        x[i] = std::numeric_limits<T>::denorm_min() * static_cast<T>(rng() % 1000);
        break;
      case 5:
        x[i] = static_cast<T>(0.5 * static_cast<double>(static_cast<int64_t>(rng() % 2001) - 1000));
        break;
      default:
        x[i] = rng() % 50 == 0 ? AnyBits<T>(rng) : static_cast<T>(smooth);
    }
  }
  return x;
}
inline constexpr int kVectorKinds = 7;

// The distance without rounding, for what two floats can be apart.
template <class T>
bool Within(T x, T y, double bound) {
  const long double distance = std::fabs(static_cast<long double>(x) - static_cast<long double>(y));
  return distance <= static_cast<long double>(bound);
}

template <class T>
Bytes Frame(const std::vector<T>& x, ErrorBound bound) {
  Bytes frame(MaxFrameBytes(Format::kErrorBound, kTypeOf<T>, x.size()) + kEncodeSlack, 0xEE);
  const Encoded encoded = EncodeErrorBound(kTypeOf<T>, x.data(), x.size(), bound, frame.data());
  frame.resize(encoded.frame_bytes);
  return frame;
}

template <class T>
std::vector<T> Decoded(const Bytes& frame, uint64_t elements) {
  const FrameFault fault = Validate(frame.data(), frame.size(), kTypeOf<T>, elements);
  EXPECT_TRUE(fault.ok()) << NameOf(fault.error) << " at " << fault.at;
  std::vector<T> y(elements);
  if (fault.ok()) Decode(frame.data(), y.data());
  return y;
}

template <class T>
double LargestFiniteOf(const std::vector<T>& x) {
  double largest = 0;
  for (const T value : x) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  return largest;
}

}  // namespace spccl
