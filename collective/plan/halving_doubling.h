// Recursive halving and doubling: log2 P rounds, and no byte more than a ring moves.
#pragma once

#include "collective/op.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// All-reduce, or its first half alone (reduce-scatter), or its second (all-gather), over `members`,
// at least one. Recursive halving: in each round a participant exchanges half of the chunks that it
// still has with one twice as near. Recursive doubling of what came is, chunk by chunk, a binomial
// tree from the chunk's owner: who receives a chunk passes the frame on to all that it must, so
// that each chunk is encoded once. An edge may have half of all chunks waiting.
//
// Where the number of participants is no power of two, those too many hand their input to a core
// first (in a reduce-scatter: not that of their own chunks), and get what is theirs at the end.
//
// Source: Rabenseifner, "Optimization of Collective Reduction Operations" (2004), as in Thakur et
// al. (2005) and in PCCL between nodes.
Plan MakeHalvingDoubling(OpKind op, Members members);

}  // namespace spccl::plan
