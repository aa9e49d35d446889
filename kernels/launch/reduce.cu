#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/device_codec.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

cudaError_t Reduce(const Queue& queue, DType dtype, RedOp op, std::span<const void* const> inputs,
                   std::span<void* const> outputs, uint64_t elements) {
  if (inputs.empty() || inputs.size() > sparse::kMaxReduceBuffers ||
      outputs.size() > sparse::kMaxReduceBuffers) {
    return cudaErrorInvalidValue;
  }
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::Reduce(launcher, dtype, op, inputs, outputs, elements);
  return launcher.status();
}

}  // namespace spccl::launch
