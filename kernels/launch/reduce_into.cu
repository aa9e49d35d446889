#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/device_codec.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

cudaError_t ReduceInto(const Queue& queue, const DeviceFrame& frame, void* accumulator,
                       DType accumulator_dtype) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::ReduceInto(launcher, {frame.format, frame.dtype, frame.elements, frame.nnz}, frame.frame,
                     accumulator, accumulator_dtype);
  return launcher.status();
}

}  // namespace spccl::launch
