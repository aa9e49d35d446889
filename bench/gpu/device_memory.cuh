// GPU memory, and errors that end the benchmark.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace spccl::gpu_bench {

inline constexpr int kFailed = 1;
inline constexpr int kSkipped = 77;

inline void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAIL: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(kFailed);
}
#define SPCCL_MUST(call) ::spccl::gpu_bench::Must((call), #call)

// Zeroed memory, on a multiple of 256.
class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t bytes) : bytes_(bytes) {
    SPCCL_MUST(cudaMalloc(&memory_, bytes == 0 ? 1 : bytes));
    SPCCL_MUST(cudaMemset(memory_, 0, bytes == 0 ? 1 : bytes));
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { (void)cudaFree(memory_); }

  void* get() const { return memory_; }
  uint8_t* at(uint64_t bytes) const { return static_cast<uint8_t*>(memory_) + bytes; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  uint64_t bytes_;
};

}  // namespace spccl::gpu_bench
