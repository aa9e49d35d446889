// The codecs of GPU memory on CUDA streams. Every function enqueues kernels and returns; none
// waits, allocates or copies by the host. Pointers, alignment, scratch and what frames must be: as
// in kernels/sparse/device_codec.h. Thread-safe; calls on one device's scratch are ordered by its
// stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/redop.h"

namespace spccl::launch {

// Where to enqueue. `resident_blocks`: ResidentBlocks() of the stream's device.
struct Queue {
  cudaStream_t stream;
  uint32_t resident_blocks;
};

// Blocks of 256 threads that the device runs at a time.
cudaError_t ResidentBlocks(int device, uint32_t& blocks);

struct DeviceFrame {
  Format format;
  DType dtype;
  uint64_t elements;
  uint64_t nnz;
  const void* frame;
};

// Bytes of zeroed device memory that encoding `elements` elements needs.
uint64_t ScratchBytes(Format format, DType dtype, uint64_t elements);

cudaError_t Encode(const Queue& queue, Format format, DType dtype, const void* dense,
                   uint64_t elements, void* frame, void* scratch);
// Sets *faults, in device memory, to 1 if the body lies; the header has been checked by the host.
cudaError_t ValidateBody(const Queue& queue, const DeviceFrame& frame, uint32_t* faults);
cudaError_t Decode(const Queue& queue, const DeviceFrame& frame, void* dense);
cudaError_t ReduceInto(const Queue& queue, const DeviceFrame& frame, void* accumulator,
                       DType accumulator_dtype);
// `to` gets the pici frame of (local + frame).
cudaError_t AddAndEncode(const Queue& queue, const DeviceFrame& frame, DType local_dtype,
                         const void* local, void* to, void* scratch);
// Adds the number of nonzeros to *count, in device memory.
cudaError_t CountNonzeros(const Queue& queue, DType dtype, const void* dense, uint64_t elements,
                          uint64_t* count);
cudaError_t Reduce(const Queue& queue, DType dtype, RedOp op, std::span<const void* const> inputs,
                   std::span<void* const> outputs, uint64_t elements);

}  // namespace spccl::launch
