// A rank's end of the relays of its communicator (proto/shm/relay.h): here the ranks' processes run
// an all-reduce on ordinary memory among themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory.h"
#include "kernels/dtype.h"
#include "kernels/redop.h"
#include "proto/shm/relay.h"

namespace spccl::client {

class Session;

class Relay {
 public:
  // What one rank gives and gets. In place or disjoint.
  struct Buffers {
    uint64_t sequence;  // of the operation on the communicator
    const void* send;
    void* recv;
    size_t bytes;
    DType dtype;
    RedOp redop;
  };
  enum class End {
    kComplete,   // all results are there
    kElsewhere,  // the operation does not pass through relays
    kCutShort,   // it has ended before all was there
  };
  // How the exchange reaches beyond the relays' memory.
  struct Hooks {
    std::function<bool()> has_ended;  // asked whenever nothing comes
    // All ranks are done. Each that sees it tells: one at least, and several where they end at
    // once.
    std::function<void()> tell_daemon;
  };

  // Asks the daemon for the memory (blocks for the reply) and makes this rank's part of it present.
  static absl::StatusOr<std::unique_ptr<Relay>> Open(Session& session, uint32_t comm_id,
                                                     uint32_t rank, uint32_t ranks);
  // `memory` holds RelayBytes(ranks).
  Relay(SharedMapping memory, uint32_t rank, uint32_t ranks);

  // Of an operation that was submitted with the offer. Blocks; looks again after a tenth of a
  // second at the latest. Only one of several threads with an operation each is past the daemon's
  // decision at a time, because the daemon runs one after the other.
  End Exchange(const Buffers& buffers, const Hooks& hooks);

 private:
  class Passage;

  shm::RelayControl& control(uint32_t rank) const;
  std::byte* Slot(uint32_t rank, uint64_t slice) const;
  std::atomic<uint64_t>& Turn(uint32_t rank, uint64_t slice) const;
  void Ring(uint32_t rank) const;
  // Until `is_there` or `has_ended`; false in the latter case.
  bool Await(const std::function<bool()>& is_there, const std::function<bool()>& has_ended) const;
  void SayDone(uint64_t sequence, const Hooks& hooks) const;

  const SharedMapping memory_;
  const uint32_t rank_, ranks_;
};

}  // namespace spccl::client
