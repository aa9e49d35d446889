// Lossy formats: what a caller asks of them. Used only on request, never by a default.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/dtype.h"
#include "kernels/format.h"

namespace spccl {

// How far a decoded element may be from what was encoded.
struct ErrorBound {
  double value = 0;
  // false: the distance itself. true: as a fraction of the largest finite magnitude among the
  // elements of the frame (that is, of the slice that is sent).
  bool relative = false;
  bool operator==(const ErrorBound&) const = default;
};

// A bound is a positive, finite number; a relative one is below 1. False for a NaN.
constexpr bool IsValid(const ErrorBound& bound) {
  return bound.value > 0 && bound.value <= std::numeric_limits<double>::max() &&
         (!bound.relative || bound.value < 1);
}

// The types that lossy formats carry.
constexpr bool LossyCarries(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// What the levels of a QSGD frame are drawn by: that of element i by the seed and by first + i, its
// number in a whole of which the frame holds a part. However the whole is cut between buckets, it
// draws the same.
struct Draws {
  uint64_t seed = 0;
  uint64_t first = 0;
};

// Bits of a level of a QSGD format; 0 for other formats.
constexpr uint32_t QsgdBits(Format format) {
  return format == Format::kQsgd2   ? 2
         : format == Format::kQsgd4 ? 4
         : format == Format::kQsgd8 ? 8
                                    : 0;
}

}  // namespace spccl
