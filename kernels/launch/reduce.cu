#include <span>

#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/table_functions.h"

namespace spccl::launch {

int Reduce(const Queue* queue, uint8_t dtype, uint8_t redop, const void* const* inputs,
           uint32_t input_count, void* const* outputs, uint32_t output_count, uint64_t elements) {
  if (!IsValidDType(dtype) || !IsValidRedOp(redop) || input_count == 0 ||
      input_count > sparse::kMaxReduceBuffers || output_count > sparse::kMaxReduceBuffers) {
    return cudaErrorInvalidValue;
  }
  CudaLauncher launcher(*queue);
  sparse::Reduce(launcher, static_cast<DType>(dtype), static_cast<RedOp>(redop),
                 std::span(inputs, input_count), std::span(outputs, output_count), elements);
  return launcher.status();
}

}  // namespace spccl::launch
