// How large the slices of an operation between nodes are. Pure, and the same on all nodes to the
// last bit, as choose_plan.h says.
#pragma once

#include <cstdint>

#include "collective/op.h"
#include "collective/policy/tuning.h"

namespace spccl::policy {

// Bytes of a slice, in the type of its partial sums: what `tuning` fixes; else as many as make a
// frame of a good size at the density that is expected, so long as a chunk of `chunk_elements`
// elements is still cut into enough slices to keep the link and the cores busy side by side.
uint64_t SliceBytes(const Tuning& tuning, const OpDesc& op, uint32_t ranks,
                    uint64_t chunk_elements);

// The density of the sum of `ranks` inputs of density `d`, at independent uniform positions.
double DensityOfSum(double d, uint32_t ranks);

// What senders use for `op`: tuning.codec, or kDense where the operation has to go dense.
Codec CodecFor(const Tuning& tuning, const OpDesc& op);

}  // namespace spccl::policy
