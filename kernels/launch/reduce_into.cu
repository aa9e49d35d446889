#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int ReduceInto(const Queue* queue, const DeviceFrame* frame, void* accumulator,
               uint8_t accumulator_dtype) {
  if (!IsKnown(*frame) || !IsValidDType(accumulator_dtype)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::ReduceInto(launcher, InfoOf(*frame), frame->frame, accumulator,
                     static_cast<DType>(accumulator_dtype));
  return launcher.status();
}

}  // namespace spccl::launch
