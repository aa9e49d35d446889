#include <cstring>
#include <vector>

#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "tests/support/fake_cuda/fake_device_codec.h"

namespace spccl::fake_cuda::host {

void Encode(Format format, DType dtype, const void* dense, uint64_t elements, void* frame) {
  // The host's encoder takes some room behind the frame, which kernels leave alone.
  std::vector<char> room(MaxFrameBytes(format, dtype, elements) + kEncodeSlack);
  const Encoded encoded = spccl::Encode(format, dtype, dense, elements, room.data());
  std::memcpy(frame, room.data(), encoded.frame_bytes);
}

void ValidateBody(const sparse::FrameInfo& info, const void* frame, uint32_t* faults) {
  const uint64_t bytes = FrameBytes(info.format, info.dtype, info.elements, info.nnz);
  if (!Validate(frame, bytes, info.dtype, info.elements).ok()) *faults = 1;
}

void AddAndEncode(const sparse::FrameInfo& info, const void* frame, DType local_dtype,
                  const void* local, void* to) {
  std::vector<char> sum(info.elements * SizeOf(info.dtype));
  if (local_dtype == info.dtype) {
    std::memcpy(sum.data(), local, sum.size());
  } else {
    spccl::Widen(local_dtype, RedOp::kSum, local, sum.data(), info.elements);
  }
  spccl::ReduceInto(frame, sum.data(), info.dtype);
  host::Encode(Format::kPici, info.dtype, sum.data(), info.elements, to);
}

void Finish(DType dtype, RedOp op, const void* accumulator, std::span<void* const> outputs,
            uint64_t elements, uint32_t ranks) {
  // The one that is the accumulator itself last.
  for (const bool in_place : {false, true}) {
    for (void* const output : outputs) {
      if ((output == accumulator) != in_place) continue;
      spccl::Finish(dtype, op, accumulator, output, elements, ranks);
    }
  }
}

}  // namespace spccl::fake_cuda::host
