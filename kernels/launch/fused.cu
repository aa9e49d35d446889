#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int AddAndEncode(const Queue* queue, const DeviceFrame* frame, uint8_t local_dtype,
                 const void* local, void* to, void* scratch) {
  if (frame->format != static_cast<uint8_t>(Format::kPici) || !IsValidDType(frame->dtype) ||
      !IsValidDType(local_dtype)) {
    return cudaErrorInvalidValue;
  }
  CudaLauncher launcher(*queue);
  sparse::AddAndEncode(launcher, InfoOf(*frame), frame->frame, static_cast<DType>(local_dtype),
                       local, to, scratch);
  return launcher.status();
}

}  // namespace spccl::launch
