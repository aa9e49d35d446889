// The memory of one rank in one operation.
#pragma once

#include <memory>
#include <span>

#include "collective/runtime/memory.h"
#include "collective/runtime/rank_relay.h"

namespace spccl::runtime {

// Sizes are SendElements() and RecvElements() of the operation. In place as NCCL defines it:
// all-reduce and broadcast with send == recv, reduce-scatter with recv == send + rank * count,
// all-gather with send == recv + rank * count. Broadcast reads only the root's send buffer; the
// others' may be empty views.
struct RankBuffers {
  MemoryView send;
  MemoryView recv;
  // An offer to pass an all-reduce through relays instead; null: none.
  std::shared_ptr<RankRelay> relay;
};

// For operations that do not use the relays that they were offered: tells the ranks.
inline void DeclineRelays(std::span<const RankBuffers> ranks) {
  for (const RankBuffers& rank : ranks) {
    if (rank.relay != nullptr) rank.relay->Decline();
  }
}

}  // namespace spccl::runtime
