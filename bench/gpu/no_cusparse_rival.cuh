// In place of cuSPARSE where its header is not installed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

namespace spccl::gpu_bench {

struct CusparseLibrary {
  static std::unique_ptr<CusparseLibrary> Load(cudaStream_t) { return nullptr; }
};

// Never made, as there is no library.
class CusparseRival {
 public:
  CusparseRival(const CusparseLibrary&, cudaDataType, uint64_t, uint64_t, uint64_t) {}
  void Encode(void*) {}
  void Decode(void*) {}
  void Add(const uint32_t*, const void*, uint64_t, void*) {}
  bool ok() const { return false; }
};

}  // namespace spccl::gpu_bench
