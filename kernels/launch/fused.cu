#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/device_codec.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

cudaError_t AddAndEncode(const Queue& queue, const DeviceFrame& frame, DType local_dtype,
                         const void* local, void* to, void* scratch) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::AddAndEncode(launcher, {frame.format, frame.dtype, frame.elements, frame.nnz},
                       frame.frame, local_dtype, local, to, scratch);
  return launcher.status();
}

}  // namespace spccl::launch
