#include <span>

#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int Widen(const Queue* queue, uint8_t dtype, uint8_t redop, const void* input, void* accumulator,
          uint64_t elements) {
  if (!IsValidDType(dtype) || !IsValidRedOp(redop)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::Widen(launcher, static_cast<DType>(dtype), static_cast<RedOp>(redop), input, accumulator,
                elements);
  return launcher.status();
}

int Accumulate(const Queue* queue, uint8_t accumulator_dtype, uint8_t redop, const void* partial,
               void* accumulator, uint64_t elements) {
  if (!IsValidDType(accumulator_dtype) || !IsValidRedOp(redop)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::Accumulate(launcher, static_cast<DType>(accumulator_dtype), static_cast<RedOp>(redop),
                     partial, accumulator, elements);
  return launcher.status();
}

int Finish(const Queue* queue, uint8_t dtype, uint8_t redop, const void* accumulator,
           void* const* outputs, uint32_t output_count, uint64_t elements, uint32_t ranks) {
  if (!IsValidDType(dtype) || !IsValidRedOp(redop) || ranks == 0 ||
      output_count > sparse::kMaxReduceBuffers) {
    return cudaErrorInvalidValue;
  }
  CudaLauncher launcher(*queue);
  sparse::Finish(launcher, static_cast<DType>(dtype), static_cast<RedOp>(redop), accumulator,
                 std::span(outputs, output_count), elements, ranks);
  return launcher.status();
}

int CopyToMany(const Queue* queue, uint8_t dtype, const void* input, void* const* outputs,
               uint32_t output_count, uint64_t elements) {
  if (!IsValidDType(dtype) || output_count > sparse::kMaxReduceBuffers) {
    return cudaErrorInvalidValue;
  }
  CudaLauncher launcher(*queue);
  sparse::CopyToMany(launcher, static_cast<DType>(dtype), input, std::span(outputs, output_count),
                     elements);
  return launcher.status();
}

}  // namespace spccl::launch
