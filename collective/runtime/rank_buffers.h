// The memory of one rank in one operation.
#pragma once

#include "collective/runtime/memory.h"

namespace spccl::runtime {

// Sizes are SendElements() and RecvElements() of the operation. In place as NCCL defines it:
// all-reduce and broadcast with send == recv, reduce-scatter with recv == send + rank * count,
// all-gather with send == recv + rank * count. Broadcast reads only the root's send buffer; the
// others' may be empty views.
struct RankBuffers {
  MemoryView send;
  MemoryView recv;
};

}  // namespace spccl::runtime
