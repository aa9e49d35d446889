// The buffers of the ranks of one operation, in place or not, mapped or reached by cross-memory
// attach (to this very process).
#pragma once

#include <cstdint>
#include <vector>

#include "collective/op.h"
#include "collective/runtime/rank_buffers.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/process_memory.h"

namespace spccl::testing {

class RankMemory {
 public:
  // Bit r of `in_place` and `remote`: how rank r has its buffers. `send` are the inputs.
  RankMemory(const OpDesc& op, const std::vector<Bytes>& send, uint64_t in_place, uint64_t remote)
      : op_(op), memory_(send.size()) {
    const uint32_t ranks = static_cast<uint32_t>(send.size());
    for (uint32_t rank = 0; rank < ranks; ++rank) Add(send[rank], rank, ranks, in_place, remote);
  }

  const std::vector<runtime::RankBuffers>& buffers() const { return buffers_; }

  // What rank's receive buffer holds.
  Bytes Received(uint32_t rank) const {
    const Memory& memory = memory_[rank];
    const auto begin = memory.bytes.begin() + static_cast<ptrdiff_t>(memory.recv);
    return Bytes(begin, begin + static_cast<ptrdiff_t>(memory.recv_bytes));
  }

 private:
  struct Memory {
    Bytes bytes;
    size_t recv;
    size_t recv_bytes;
  };

  void Add(const Bytes& send, uint32_t rank, uint32_t ranks, uint64_t in_place, uint64_t remote) {
    const size_t width = SizeOf(op_.dtype);
    const size_t recv_bytes = RecvElements(op_, ranks) * width;
    const size_t share = rank * op_.count * width;
    size_t send_at = 0;
    size_t recv_at = send.size();
    size_t total = send.size() + recv_bytes;
    if ((in_place >> rank & 1) != 0) {
      send_at = op_.kind == OpKind::kAllGather ? share : 0;
      const bool to_share = op_.kind == OpKind::kReduceScatter || op_.kind == OpKind::kScatter;
      recv_at = to_share ? share : 0;
      total = send.size() > recv_bytes ? send.size() : recv_bytes;
    }
    Memory& memory = memory_[rank];
    memory = {Bytes(total + 1, std::byte{0xA5}), recv_at, recv_bytes};  // never an empty vector
    std::copy(send.begin(), send.end(), memory.bytes.begin() + static_cast<ptrdiff_t>(send_at));
    const auto view = [&](size_t at) {
      std::byte* data = memory.bytes.data() + at;
      return (remote >> rank & 1) != 0
                 ? runtime::MemoryView::Remote(OwnMemory(), reinterpret_cast<uint64_t>(data))
                 : runtime::MemoryView::Mapped(data);
    };
    buffers_.push_back({.send = view(send_at), .recv = view(recv_at), .relay = nullptr});
  }

  OpDesc op_;
  std::vector<Memory> memory_;
  std::vector<runtime::RankBuffers> buffers_;
};

}  // namespace spccl::testing
