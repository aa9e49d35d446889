#include "kernels/launch/cuda_launcher.cuh"
#include "kernels/launch/device_codec.h"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

cudaError_t ResidentBlocks(int device, uint32_t& blocks) {
  int processors = 0;
  int threads = 0;
  cudaError_t status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  if (status != cudaSuccess) return status;
  blocks = static_cast<uint32_t>(processors * threads) / sparse::kBlockLanes;
  return cudaSuccess;
}

uint64_t ScratchBytes(Format format, DType dtype, uint64_t elements) {
  return sparse::ScratchBytes(format, dtype, elements);
}

cudaError_t Encode(const Queue& queue, Format format, DType dtype, const void* dense,
                   uint64_t elements, void* frame, void* scratch) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::Encode(launcher, format, dtype, dense, elements, frame, scratch);
  return launcher.status();
}

cudaError_t CountNonzeros(const Queue& queue, DType dtype, const void* dense, uint64_t elements,
                          uint64_t* count) {
  CudaLauncher launcher(queue.stream, queue.resident_blocks);
  sparse::Count(launcher, dtype, dense, elements, count);
  return launcher.status();
}

}  // namespace spccl::launch
