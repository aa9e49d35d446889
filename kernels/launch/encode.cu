#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int Encode(const Queue* queue, uint8_t format, uint8_t dtype, const void* dense, uint64_t elements,
           void* frame, void* scratch) {
  if (!IsExactFormat(format) || !IsValidDType(dtype)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::Encode(launcher, static_cast<Format>(format), static_cast<DType>(dtype), dense, elements,
                 frame, scratch);
  return launcher.status();
}

int CountNonzeros(const Queue* queue, uint8_t dtype, const void* dense, uint64_t elements,
                  uint64_t* count) {
  if (!IsValidDType(dtype)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::Count(launcher, static_cast<DType>(dtype), dense, elements, count);
  return launcher.status();
}

}  // namespace spccl::launch
