// Binomial trees from a root.
#pragma once

#include <cstdint>

#include "collective/plan/plan.h"

namespace spccl::plan {

// Over `members`, at least one; `root` is a rank. log2 P rounds, rounded up.
//
// Broadcast: in round t each of the first 2^t participants (from the root on) sends the frame that
// it got, or the root encoded, to the one 2^t further on.
Plan MakeBinomialBroadcast(Members members, uint32_t root);

// Scatter: the root's chunks are encoded one by one, as gZCCL does (Huang et al., section 3.3.4:
// so that the inner nodes of the tree pass them on as they come), those with the longest way first.
Plan MakeBinomialScatter(Members members, uint32_t root);

}  // namespace spccl::plan
