// Where the chunks of a plan lie in the ranks' buffers, and how they are cut into slices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/op.h"
#include "collective/plan/partition.h"

namespace spccl::runtime {

// Slice `lane` of every chunk makes one lane. Pure, trivially copyable. All in elements.
class Layout {
 public:
  // slice_elements > 0.
  Layout(const OpDesc& op, uint32_t chunks, uint64_t slice_elements)
      : op_(op), chunks_(chunks), slice_elements_(slice_elements) {}

  // No chunk is larger than the first.
  uint64_t largest_chunk() const { return Chunk(0).elements; }

  // At least one, also of an empty operation.
  uint64_t lanes() const {
    const uint64_t largest = largest_chunk();
    return std::max<uint64_t>(1, (largest + slice_elements_ - 1) / slice_elements_);
  }

  // Elements of the slice; the last lanes' may be shorter, or empty.
  uint64_t SliceElements(uint32_t chunk, uint64_t lane) const {
    const uint64_t elements = Chunk(chunk).elements;
    const uint64_t first = lane * slice_elements_;
    return first >= elements ? 0 : std::min(slice_elements_, elements - first);
  }

  // Where the slice starts in a rank's send and receive buffer. An all-gather's send buffer holds
  // only the rank's own chunk, a reduce-scatter's or a scatter's receive buffer
  // too.
  uint64_t InputOffset(uint32_t chunk, uint64_t lane) const {
    const bool own_only = op_.kind == OpKind::kAllGather;
    return (own_only ? 0 : Chunk(chunk).first) + lane * slice_elements_;
  }
  uint64_t OutputOffset(uint32_t chunk, uint64_t lane) const {
    const bool own_only = op_.kind == OpKind::kReduceScatter || op_.kind == OpKind::kScatter;
    return (own_only ? 0 : Chunk(chunk).first) + lane * slice_elements_;
  }

 private:
  plan::Range Chunk(uint32_t chunk) const {
    switch (op_.kind) {
      case OpKind::kAllGather:
      case OpKind::kReduceScatter:
      case OpKind::kScatter:
        return {chunk * op_.count, op_.count};
      case OpKind::kAllReduce:
      case OpKind::kBroadcast:
        break;
    }
    return plan::ChunkOf(op_.count, chunks_, chunk);
  }

  OpDesc op_;
  uint32_t chunks_;
  uint64_t slice_elements_;
};

}  // namespace spccl::runtime
