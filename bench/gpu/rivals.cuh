// What a user does without spccl: indices and values, made by CUB's DeviceSelect or by cuSPARSE,
// and scattered back. float32 and bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <cub/device/device_select.cuh>

#include <type_traits>

#include "bench/gpu/device_memory.cuh"

namespace spccl::gpu_bench {

// The bits of an element, and the value that they are.
template <class U>
struct ElementOf;
template <>
struct ElementOf<uint32_t> {
  static constexpr uint32_t kMagnitude = 0x7FFFFFFF;
  static __device__ float Value(uint32_t bits) { return __uint_as_float(bits); }
  static __device__ uint32_t Bits(float value) { return __float_as_uint(value); }
};
template <>
struct ElementOf<uint16_t> {
  static constexpr uint16_t kMagnitude = 0x7FFF;
  static __device__ float Value(uint16_t bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
  static __device__ uint16_t Bits(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
};

template <class U>
struct IsNonzero {
  __host__ __device__ bool operator()(U bits) const {
    return (bits & ElementOf<U>::kMagnitude) != 0;
  }
};

// dense[indices[i]] = values[i], or += them.
template <class U, bool kAdds>
__global__ void Scatter(const uint32_t* indices, const U* values, uint64_t count, U* dense) {
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t at = indices[i];
    if constexpr (kAdds) {
      dense[at] =
          ElementOf<U>::Bits(ElementOf<U>::Value(dense[at]) + ElementOf<U>::Value(values[i]));
    } else {
      dense[at] = values[i];
    }
  }
}

// Indices and values of up to `most` nonzeros of `elements` elements.
template <class U>
class CubRival {
 public:
  CubRival(uint64_t elements, uint64_t most, int blocks)
      : elements_(elements),
        blocks_(blocks),
        indices_(most * sizeof(uint32_t)),
        values_(most * sizeof(U)),
        found_(sizeof(uint64_t)) {
    SPCCL_MUST(Select(nullptr, temporary_bytes_, nullptr, nullptr));
    SPCCL_MUST(cudaMalloc(&temporary_, temporary_bytes_));
  }
  ~CubRival() { (void)cudaFree(temporary_); }
  CubRival(const CubRival&) = delete;
  CubRival& operator=(const CubRival&) = delete;

  // One pass: flags are computed as they are read, indices and values written together.
  void Encode(const U* dense, cudaStream_t stream) {
    SPCCL_MUST(Select(temporary_, temporary_bytes_, dense, stream));
  }
  // The number that the last Encode() found; waits for it.
  uint64_t Found(cudaStream_t stream) {
    uint64_t found = 0;
    SPCCL_MUST(cudaMemcpyAsync(&found, found_.get(), sizeof(found), cudaMemcpyDefault, stream));
    SPCCL_MUST(cudaStreamSynchronize(stream));
    return found;
  }
  void Decode(uint64_t count, U* dense, cudaStream_t stream) {
    SPCCL_MUST(cudaMemsetAsync(dense, 0, elements_ * sizeof(U), stream));
    Scatter<U, false><<<blocks_, 256, 0, stream>>>(indices(), values(), count, dense);
  }
  void Add(uint64_t count, U* dense, cudaStream_t stream) {
    Scatter<U, true><<<blocks_, 256, 0, stream>>>(indices(), values(), count, dense);
  }
  uint32_t* indices() const { return indices_.as<uint32_t>(); }
  U* values() const { return values_.as<U>(); }

 private:
  cudaError_t Select(void* temporary, size_t& bytes, const U* dense, cudaStream_t stream) {
    const auto from = thrust::make_zip_iterator(thrust::counting_iterator<uint32_t>(0), dense);
    const auto flags = thrust::make_transform_iterator(dense, IsNonzero<U>());
    const auto to = thrust::make_zip_iterator(indices(), values());
    return cub::DeviceSelect::Flagged(temporary, bytes, from, flags, to, found_.as<uint64_t>(),
                                      static_cast<int64_t>(elements_), stream);
  }

  uint64_t elements_;
  int blocks_;
  DeviceMemory indices_, values_, found_;
  void* temporary_ = nullptr;
  size_t temporary_bytes_ = 0;
};

}  // namespace spccl::gpu_bench
