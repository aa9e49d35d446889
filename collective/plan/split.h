// Direct exchanges: everybody sends to everybody, each chunk over one link only.
#pragma once

#include "collective/op.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// Reduce-scatter, or all-reduce, over `members`, at least one: each participant owns a range, gets
// everybody's contribution to it, and (all-reduce) sends the result to everybody, encoded once.
//
// Contributions travel before any merging, so as sparse as they will ever be: SparCML's path for
// large data (SSAR_Split_allgather; Renggli et al., section 5.3), which is its DSAR_Split_allgather
// where the policy finds the results too dense.
Plan MakeSplit(OpKind op, Members members);

// All-gather: each participant sends its chunks, encoded once, to all others.
Plan MakeDirectAllGather(Members members);

}  // namespace spccl::plan
