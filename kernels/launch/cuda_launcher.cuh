// Launches kernels on a stream: the launcher of kernels/sparse/device_codec.h for a GPU.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/codec_table.h"
#include "kernels/simt/cuda_lane.cuh"
#include "kernels/sparse/device_codec.h"

namespace spccl::launch {

// Blocks that a processor should hold at least, for kernels that say so (kMinBlocks). Naming none
// is not the same as naming one: ptxas then aims at an occupancy of its own choice, and may spill
// for it.
template <class K>
constexpr uint32_t MinBlocksOf() {
  if constexpr (requires { K::kMinBlocks; }) {
    return K::kMinBlocks;
  } else {
    return 0;
  }
}

// The one __global__ function: a kernel body with the CUDA lane. `params` stays where the driver
// put it.
template <class K>
__global__ void __launch_bounds__(K::kThreads, MinBlocksOf<K>())
    Entry(const __grid_constant__ typename K::Params params) {
  __shared__ typename K::Shared shared;
  simt::CudaLane lane;
  K::Run(lane, shared, params);
}

class CudaLauncher {
 public:
  explicit CudaLauncher(const device::Queue& queue)
      : stream_(static_cast<cudaStream_t>(queue.stream)), resident_(queue.resident_blocks) {}

  template <class K>
  void Launch(uint32_t blocks, const typename K::Params& params) {
    if (status_ != cudaSuccess) return;
    Entry<K><<<blocks, K::kThreads, 0, stream_>>>(params);
    status_ = cudaGetLastError();
  }
  uint32_t Resident() const { return resident_; }
  cudaError_t status() const { return status_; }

 private:
  cudaStream_t stream_;
  uint32_t resident_;
  cudaError_t status_ = cudaSuccess;
};

inline sparse::FrameInfo InfoOf(const device::DeviceFrame& frame) {
  return {static_cast<Format>(frame.format), static_cast<DType>(frame.dtype), frame.elements,
          frame.nnz};
}

}  // namespace spccl::launch
