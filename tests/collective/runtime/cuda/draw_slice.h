#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include "collective/op.h"

namespace spccl::testing {

// The size of an operation's slices on fake GPUs: of `powers` of two from 64 bytes on a random one,
// or a 256th of all ranks' bytes if that is more. Each slice takes some kernels, and each kernel
// hundreds of fibres.
inline size_t DrawSliceBytes(const OpDesc& op, uint32_t ranks, unsigned powers,
                             std::mt19937_64* random) {
  const size_t drawn = size_t{64} << ((*random)() % powers);
  const size_t least = ranks * op.count * SizeOf(op.dtype) / 256 / 64 * 64;
  return std::max(drawn, least);
}

}  // namespace spccl::testing
