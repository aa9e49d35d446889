// The CUDA lane: the lane concept on a GPU. Costs nothing: every call is an instruction or two.
#pragma once

#include <cuda/atomic>

#include "kernels/simt/lane.h"

namespace spccl::simt {

class CudaLane {
 public:
  __device__ uint32_t Thread() const { return threadIdx.x; }
  __device__ uint32_t Threads() const { return blockDim.x; }
  __device__ uint32_t Block() const { return blockIdx.x; }
  __device__ uint32_t Blocks() const { return gridDim.x; }
  __device__ uint32_t Lane() const { return threadIdx.x % kWarpLanes; }
  __device__ uint32_t Warp() const { return threadIdx.x / kWarpLanes; }

  __device__ void SyncThreads() { __syncthreads(); }
  __device__ void SyncWarp(uint32_t mask) { __syncwarp(mask); }
  // Gives way to the warps of the block that is waited for, should they be on this processor.
  __device__ void Pause() { __nanosleep(20); }

  __device__ uint32_t Ballot(uint32_t mask, bool predicate) {
    return __ballot_sync(mask, predicate);
  }
  __device__ uint32_t Shuffle(uint32_t mask, uint32_t value, uint32_t source) {
    return __shfl_sync(mask, value, static_cast<int>(source));
  }
  __device__ uint64_t Shuffle(uint32_t mask, uint64_t value, uint32_t source) {
    return __shfl_sync(mask, static_cast<unsigned long long>(value), static_cast<int>(source));
  }
  __device__ uint32_t ShuffleUp(uint32_t mask, uint32_t value, uint32_t delta) {
    return __shfl_up_sync(mask, value, delta);
  }
  __device__ uint32_t ShuffleDown(uint32_t mask, uint32_t value, uint32_t delta) {
    return __shfl_down_sync(mask, value, delta);
  }
  __device__ uint32_t ShuffleXor(uint32_t mask, uint32_t value, uint32_t bits) {
    return __shfl_xor_sync(mask, value, static_cast<int>(bits));
  }

  template <class T>
  __device__ T LoadRelaxed(const T* p) {
    return Atomic<T>(*const_cast<T*>(p)).load(::cuda::std::memory_order_relaxed);
  }
  template <class T>
  __device__ T LoadAcquire(const T* p) {
    return Atomic<T>(*const_cast<T*>(p)).load(::cuda::std::memory_order_acquire);
  }
  template <class T>
  __device__ void StoreRelaxed(T* p, ::cuda::std::type_identity_t<T> value) {
    Atomic<T>(*p).store(value, ::cuda::std::memory_order_relaxed);
  }
  template <class T>
  __device__ void StoreRelease(T* p, ::cuda::std::type_identity_t<T> value) {
    Atomic<T>(*p).store(value, ::cuda::std::memory_order_release);
  }
  template <class T>
  __device__ T FetchAdd(T* p, ::cuda::std::type_identity_t<T> value) {
    return Atomic<T>(*p).fetch_add(value, ::cuda::std::memory_order_relaxed);
  }
  template <class T>
  __device__ T FetchOr(T* p, ::cuda::std::type_identity_t<T> value) {
    return Atomic<T>(*p).fetch_or(value, ::cuda::std::memory_order_relaxed);
  }

  // Global memory only. Not through the read-only path: what is read may be written in the same
  // launch (reductions in place), and other GPUs' memory is coherent here only by ordinary loads.
  __device__ Vec16 Load16(const void* p) {
    Vec16 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
  }
  __device__ Vec16 Load16Once(const void* p) {
    Vec16 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
  }
  __device__ void Store16(void* p, const Vec16& v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
  }
  __device__ void Store16Once(void* p, const Vec16& v) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(p)),
                 "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
  }

 private:
  template <class T>
  using Atomic = ::cuda::atomic_ref<T, ::cuda::thread_scope_device>;
};
static_assert(SimtLane<CudaLane>);

}  // namespace spccl::simt
