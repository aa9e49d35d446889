#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/device_codec.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

cudaError_t ValidateBody(const Queue& queue, const DeviceFrame& frame, uint32_t* faults) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::ValidateBody(launcher, {frame.format, frame.dtype, frame.elements, frame.nnz},
                       frame.frame, faults);
  return launcher.status();
}

cudaError_t Decode(const Queue& queue, const DeviceFrame& frame, void* dense) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::Decode(launcher, {frame.format, frame.dtype, frame.elements, frame.nnz}, frame.frame,
                 dense);
  return launcher.status();
}

}  // namespace spccl::launch
