// Pieces of work that are enqueued on one GPU, whoever's run they are part of. Each returns when it
// is enqueued; the issuing thread's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/runtime/cuda/gpus.h"
#include "kernels/dtype.h"
#include "kernels/format.h"

namespace spccl::runtime {

// What a kernel's launch returned.
absl::Status KernelStatus(const Gpus& gpus, const Gpu& gpu, int error, std::string_view what);

// The slice at `values` as a frame in the GPU's memory; its header comes to the host's copy, too.
// Its size is known when that has ended: SizeOfFrame. After an error, too, *frame may be in use.
absl::Status EnqueueEncode(Gpus& gpus, Gpu& gpu, uint64_t lane, Format format, DType type,
                           const void* values, uint64_t elements, transport::Frame* frame);

inline const FrameHeader& HeaderOf(const transport::Frame& frame) {
  return *static_cast<const FrameHeader*>(frame.header());
}
inline size_t SizeOfFrame(const transport::Frame& frame) {
  return sizeof(FrameHeader) + HeaderOf(frame).payload_bytes;
}
// As kernels take it.
inline device::DeviceFrame InfoOf(const transport::Frame& frame) {
  const FrameHeader& header = HeaderOf(frame);
  return {.format = header.format,
          .dtype = header.dtype,
          .elements = header.element_count,
          .nnz = header.nnz,
          .frame = frame.data()};
}

}  // namespace spccl::runtime
