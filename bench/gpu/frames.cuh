// The table of GPU kernels on a benchmark's stream, and frames of vectors that are longer than one
// frame may be.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/gpu/device_memory.cuh"
#include "kernels/device/codec_table.h"
#include "kernels/format.h"
#include "kernels/layout.h"

namespace spccl::gpu_bench {

struct Kernels {
  const device::CodecTable* table = nullptr;
  device::Queue queue = {};

  void Must(int error, const char* what) const {
    if (error == 0) return;
    std::printf("FAIL: %s: %s\n", what, table->error_text(error));
    std::exit(kFailed);
  }
};

// What the most nonzeros take. What fewer may lose in rounding up the sections of gap is less than
// kRounding. (MaxFrameBytes() of kernels/host/codec.h is more, and brings the host's codecs along.)
inline uint64_t RoomFor(Format format, DType dtype, uint64_t elements) {
  constexpr uint64_t kRounding = 64;
  return LayoutOf(format, dtype, elements, elements).total + kRounding;
}

// The frames of one vector, slice by slice, and the scratch to make them.
class Frames {
 public:
  Frames(const Kernels& kernels, Format format, DType dtype, uint64_t elements)
      : kernels_(kernels), format_(format), dtype_(dtype) {
    for (uint64_t first = 0; first < elements; first += kMaxFrameElements) {
      Slice slice;
      slice.first = first;
      slice.elements = std::min(kMaxFrameElements, elements - first);
      slice.memory = std::make_unique<DeviceMemory>(RoomFor(format, dtype, slice.elements));
      slices_.push_back(std::move(slice));
    }
    scratch_ = std::make_unique<DeviceMemory>(
        kernels.table->scratch_bytes(Code(format), Code(dtype), slices_.front().elements));
  }

  void Encode(const void* dense) const {
    for (const Slice& slice : slices_) {
      kernels_.Must(
          kernels_.table->encode(&kernels_.queue, Code(format_), Code(dtype_), At(dense, slice),
                                 slice.elements, slice.memory->get(), scratch_->get()),
          "encode");
    }
  }
  // What the last Encode(), or AddAndEncode(), made; waits for it. Before any of those below.
  void Learn() {
    SPCCL_MUST(cudaStreamSynchronize(static_cast<cudaStream_t>(kernels_.queue.stream)));
    for (Slice& slice : slices_) {
      FrameHeader header;
      SPCCL_MUST(cudaMemcpy(&header, slice.memory->get(), sizeof(header), cudaMemcpyDefault));
      slice.nnz = header.nnz;
      slice.bytes = sizeof(header) + header.payload_bytes;
    }
  }
  void Decode(void* dense) const {
    for (const Slice& slice : slices_) {
      const device::DeviceFrame frame = FrameOf(slice);
      kernels_.Must(kernels_.table->decode(&kernels_.queue, &frame, At(dense, slice)), "decode");
    }
  }
  void ReduceInto(void* accumulator) const {
    for (const Slice& slice : slices_) {
      const device::DeviceFrame frame = FrameOf(slice);
      kernels_.Must(kernels_.table->reduce_into(&kernels_.queue, &frame, At(accumulator, slice),
                                                Code(dtype_)),
                    "reduce_into");
    }
  }
  // Becomes the frames of `from` plus the elements at `local`.
  void AddAndEncode(const Frames& from, const void* local) const {
    for (size_t i = 0; i < slices_.size(); ++i) {
      const device::DeviceFrame frame = FrameOf(from.slices_[i]);
      kernels_.Must(kernels_.table->add_and_encode(&kernels_.queue, &frame, Code(dtype_),
                                                   At(local, slices_[i]), slices_[i].memory->get(),
                                                   scratch_->get()),
                    "add_and_encode");
    }
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Slice& slice : slices_) sum += slice.bytes;
    return sum;
  }
  uint64_t nnz() const {
    uint64_t sum = 0;
    for (const Slice& slice : slices_) sum += slice.nnz;
    return sum;
  }
  Format format() const { return format_; }

 private:
  struct Slice {
    uint64_t first = 0, elements = 0, nnz = 0, bytes = 0;
    std::unique_ptr<DeviceMemory> memory;
  };

  template <class E>
  static uint8_t Code(E value) {
    return static_cast<uint8_t>(value);
  }
  template <class P>  // const or not, as the array is
  P* At(P* dense, const Slice& slice) const {
    using Byte = std::conditional_t<std::is_const_v<P>, const uint8_t, uint8_t>;
    return static_cast<Byte*>(dense) + slice.first * SizeOf(dtype_);
  }
  device::DeviceFrame FrameOf(const Slice& slice) const {
    return {Code(format_), Code(dtype_), slice.elements, slice.nnz, slice.memory->get()};
  }

  const Kernels& kernels_;
  const Format format_;
  const DType dtype_;
  std::vector<Slice> slices_;
  std::unique_ptr<DeviceMemory> scratch_;
};

}  // namespace spccl::gpu_bench
