// The lane: one thread of a GPU block, as kernels see it. Kernel bodies (kernels/sparse) are
// templates over a type with this concept and touch the machine through it alone. Two lanes exist:
// the GPU's (cuda_lane.cuh, compiled by nvcc) and the fibre lane (fibre_lane.h, one fibre a lane on
// the CPU).
//
// A block's lanes are numbered from 0; 32 neighbours are a warp. What a lane offers:
//
//   Thread() Threads() Block() Blocks()   its number in the block, lanes a block; the same of
//   blocks Lane() Warp()                         its number in the warp, the warp's in the block
//   SyncThreads()                         all lanes of the block meet. Orders all memory among them
//   SyncWarp(mask)                        the lanes of `mask` meet. Orders all memory among them
//   Ballot(mask, predicate)               bit i: the predicate of lane i. Lanes outside `mask`: 0
//   Shuffle(mask, value, source)          the value of lane `source`, which must be in `mask`
//   ShuffleUp/Down(mask, value, delta)    the value of the lane `delta` below / above; its own
//   where
//                                         there is none
//   ShuffleXor(mask, value, bits)         the value of lane (own number ^ bits)
//   Pause()                               in every round of a loop that waits for another block
//
// `mask` holds the caller, and the same call is made by every lane of `mask`. Ballots and shuffles
// order no memory. Atomics, on 32 and 64 bits, all of device scope:
//
//   LoadRelaxed(p) StoreRelaxed(p, v) FetchAdd(p, v) FetchOr(p, v)    no order
//   LoadAcquire(p) StoreRelease(p, v)                                  as in C++
//
// And memory by the 128 bits, `p` on a multiple of 16; "once": the line will not be used again
// soon.
//
//   Load16(p) Load16Once(p) Store16(p, v) Store16Once(p, v)
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

// Marks what kernels call: device functions under nvcc, ordinary ones elsewhere. HOST_DEVICE:
// called by those who launch kernels, too.
#if defined(__CUDACC__)
#define SPCCL_DEVICE __device__ __forceinline__
#define SPCCL_HOST_DEVICE __host__ __device__ __forceinline__
#define SPCCL_DEVICE_CONSTANT __device__ constexpr
#define SPCCL_UNROLL _Pragma("unroll")
#else
#define SPCCL_DEVICE inline
#define SPCCL_HOST_DEVICE inline
#define SPCCL_DEVICE_CONSTANT inline constexpr
#define SPCCL_UNROLL
#endif

namespace spccl::simt {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

// 128 bits: what one load of a lane moves at best.
struct alignas(16) Vec16 {
  uint32_t word[4];
};

template <class L>
concept SimtLane = requires(L& lane, uint32_t u, uint64_t w, uint32_t* p, uint64_t* q, Vec16 v) {
  { lane.Thread() } -> std::same_as<uint32_t>;
  { lane.Threads() } -> std::same_as<uint32_t>;
  { lane.Block() } -> std::same_as<uint32_t>;
  { lane.Blocks() } -> std::same_as<uint32_t>;
  { lane.Lane() } -> std::same_as<uint32_t>;
  { lane.Warp() } -> std::same_as<uint32_t>;
  lane.SyncThreads();
  lane.SyncWarp(u);
  lane.Pause();
  { lane.Ballot(u, true) } -> std::same_as<uint32_t>;
  { lane.Shuffle(u, u, u) } -> std::same_as<uint32_t>;
  { lane.Shuffle(u, w, u) } -> std::same_as<uint64_t>;
  { lane.ShuffleUp(u, u, u) } -> std::same_as<uint32_t>;
  { lane.ShuffleDown(u, u, u) } -> std::same_as<uint32_t>;
  { lane.ShuffleXor(u, u, u) } -> std::same_as<uint32_t>;
  { lane.LoadRelaxed(q) } -> std::same_as<uint64_t>;
  { lane.LoadAcquire(p) } -> std::same_as<uint32_t>;
  lane.StoreRelaxed(q, w);
  lane.StoreRelease(p, u);
  { lane.FetchAdd(q, w) } -> std::same_as<uint64_t>;
  { lane.FetchOr(p, u) } -> std::same_as<uint32_t>;
  { lane.Load16(p) } -> std::same_as<Vec16>;
  { lane.Load16Once(p) } -> std::same_as<Vec16>;
  lane.Store16(p, v);
  lane.Store16Once(p, v);
};

}  // namespace spccl::simt
