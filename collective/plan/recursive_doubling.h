// Recursive doubling: everybody has the whole after log2 P exchanges of the whole.
#pragma once

#include "collective/plan/plan.h"

namespace spccl::plan {

// All-reduce over `members`, at least one. Where their number P is no power of two, the P - 2^k
// that are too many give their input to a neighbour first, and are told the result at the end.
//
// Partial sums travel, never doubly reduced values: both sides of an exchange combine the same two
// sums, so all participants get the same bits.
//
// Source: Thakur et al., "Optimization of Collective Communication Operations in MPICH" (2005); the
// sparse form is SparCML's SSAR_Recursive_double and gZCCL's, whose remainder it has.
Plan MakeRecursiveDoubling(Members members);

}  // namespace spccl::plan
