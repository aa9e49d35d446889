#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int ValidateBody(const Queue* queue, const DeviceFrame* frame, uint32_t* faults) {
  if (!IsKnown(*frame)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::ValidateBody(launcher, InfoOf(*frame), frame->frame, faults);
  return launcher.status();
}

int Decode(const Queue* queue, const DeviceFrame* frame, void* dense) {
  if (!IsKnown(*frame)) return cudaErrorInvalidValue;
  CudaLauncher launcher(*queue);
  sparse::Decode(launcher, InfoOf(*frame), frame->frame, dense);
  return launcher.status();
}

}  // namespace spccl::launch
