// The ring: every participant sends to the next one only.
#pragma once

#include <cstdint>

#include "collective/op.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// Any operation but scatter, over `members` in their order; `root` is a rank, used by broadcast
// only. With P participants, reduce-scatter and all-gather take P - 1 rounds, all-reduce is the one
// and then the other; broadcast is a chain from the root.
//
// A chunk of a reduction starts at the participant behind its owner and is combined in ring order,
// its owner last. An owner of many chunks has a few of them go round at a time.
//
// Source: the ring of NCCL and of SpCCL (section IV.A).
Plan MakeRing(OpKind op, Members members, uint32_t root = 0);

}  // namespace spccl::plan
