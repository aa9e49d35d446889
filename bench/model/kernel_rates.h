// How long a GPU's kernels take, by format and density. Pure.
//
// Where nothing was measured, a kernel takes what its bytes take to and from the GPU's memory (its
// floor), divided by a share that says how near it gets.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "kernels/format.h"

namespace spccl::bench::model {

enum class Kernel {
  kEncode,   // dense -> frame
  kDecode,   // frame -> dense
  kCombine,  // frame added to dense
  kFused,    // frame added to dense, and the sum encoded; never dense in between
  kDense,    // dense inputs combined or copied
};
inline constexpr int kKernelCount = 5;

constexpr const char* NameOf(Kernel kernel) {
  constexpr const char* kNames[kKernelCount] = {"encode", "decode", "combine", "fused", "dense"};
  return kNames[static_cast<int>(kernel)];
}

// Bytes of a frame, of a byte of dense elements of `width` bytes: docs/wire.md, section "Size".
// Headers and padding are left out.
double WireShare(Format format, double width, double density);

// Bytes that a kernel reads and writes, of a byte of dense elements. A combine reads and writes the
// sectors of 32 bytes that have a nonzero, at independent uniform positions. `density` is that of
// what comes in, and of a kEncode's input. kFused's sum has `density_out`.
double FloorBytes(Kernel kernel, Format format, double width, double density, double density_out);

struct KernelRates {
  double memory_rate = 1e12;  // bytes per second of the GPU's memory, read and written
  // Of the floor's rate, by Kernel.
  std::array<double, kKernelCount> shares = {1, 1, 1, 1, 1};

  // What was measured, in place of the above: seconds a byte of dense elements, at rising
  // densities; between them in a straight line, outside as at the nearest.
  struct Point {
    double density, seconds;
  };
  std::map<std::pair<Kernel, Format>, std::vector<Point>> measured;

  double SecondsPerByte(Kernel kernel, Format format, double width, double density,
                        double density_out = 0) const;
  // A byte of the result of `inputs` dense inputs; of one: a copy.
  double DenseSecondsPerByte(double inputs) const;
};

}  // namespace spccl::bench::model
