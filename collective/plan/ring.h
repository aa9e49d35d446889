// The flat ring: every participant sends to the next one only.
#pragma once

#include <cstdint>

#include "collective/op.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// `ranks` > 0; `root` < ranks, used by broadcast only. Reduce-scatter and all-gather take
// ranks - 1 rounds, all-reduce is the one and then the other; broadcast is a chain from the root.
//
// Chunk c of a reduction starts at rank c + 1 and is combined in ring order, its owner c last.
// Source: the ring of NCCL and of SpCCL (section IV.A).
Plan MakeRing(OpKind op, uint32_t ranks, uint32_t root = 0);

}  // namespace spccl::plan
