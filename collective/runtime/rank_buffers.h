// The memory of one rank in one operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "collective/runtime/gpu_order.h"
#include "collective/runtime/memory.h"
#include "collective/runtime/rank_relay.h"

namespace spccl::runtime {

// More elements than any memory holds; keeps every product of count, ranks and width within 64
// bits.
constexpr uint64_t kMaxElements = uint64_t{1} << 48;

// Outputs larger than this do not stay in any cache that the reader will find them in: they are
// written past the caches.
constexpr uint64_t kStreamingBytes = uint64_t{4} << 20;

// Sizes are SendElements() and RecvElements() of the operation. In place as NCCL defines it:
// all-reduce and broadcast with send == recv, reduce-scatter with recv == send + rank * count,
// all-gather with send == recv + rank * count. Broadcast reads only the root's send buffer; the
// others' may be empty views.
struct RankBuffers {
  MemoryView send;
  MemoryView recv;
  // An offer to pass an all-reduce through relays instead; null: none.
  std::shared_ptr<RankRelay> relay;
  // Of an operation on a GPU's memory: how its streams are ordered with the rank's. Null: host.
  std::shared_ptr<const GpuOrder> order;
};

// For operations that do not use the relays that they were offered: tells the ranks.
inline void DeclineRelays(std::span<const RankBuffers> ranks) {
  for (const RankBuffers& rank : ranks) {
    if (rank.relay != nullptr) rank.relay->Decline();
  }
}

}  // namespace spccl::runtime
