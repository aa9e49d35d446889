// How memory and types are named to the driver and to kernels.
#pragma once

#include <cstdint>

#include "base/cuda/abi.h"
#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/redop.h"

namespace spccl::runtime {

inline cuda::DevicePtr PointerOf(const void* memory) {
  return reinterpret_cast<cuda::DevicePtr>(memory);
}
inline uint8_t Code(DType type) {
  return static_cast<uint8_t>(type);
}
inline uint8_t Code(RedOp op) {
  return static_cast<uint8_t>(op);
}
inline uint8_t Code(Format format) {
  return static_cast<uint8_t>(format);
}

}  // namespace spccl::runtime
