// What an operation on GPUs needs to be planned, on one node or between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/runtime/cuda/gpu_runner.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/runtime/rank_buffers.h"

namespace spccl::runtime {

// Ranks of a node whose buffers one kernel takes (kernels/sparse/dense-inl.h).
inline constexpr size_t kMaxGpuRanks = 64;

// The GPUs whose memory the buffers of an operation over `ranks` ranks are in, in the order of
// their numbers: each is a rail. `buffers` are those of the ranks `here`. InvalidArgument, naming
// the rank, if one that is used is not on one of `gpus`, or not aligned to its elements, or if
// there are too many.
absl::StatusOr<std::vector<Gpu*>> RailsOf(Gpus& gpus, const OpDesc& op, uint32_t ranks,
                                          std::span<const uint32_t> here,
                                          std::span<const RankBuffers> buffers);

// Bytes of a slice, in the type of its partial sums, of a chunk of so many elements: large, as what
// is done for each slice costs tens of microseconds (docs/adr/0020), but some for every rail.
// `stages`: each open slice takes staging memory.
size_t GpuSliceBytes(const OpDesc& op, uint64_t chunk_elements, size_t rails, bool stages);

// The same between nodes: of what all nodes know alike, so that they come to the same.
size_t GpuSliceBytesBetweenNodes(const OpDesc& op, uint64_t chunk_elements);

// Lanes that keep all rails busy.
uint32_t GpuOpenLanes(size_t rails, bool stages);

}  // namespace spccl::runtime
