// The daemon's end of a rank's relay in one operation (proto/shm/relay.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "collective/runtime/rank_relay.h"
#include "daemon/reaper.h"
#include "proto/shm/relay.h"

namespace spccl::daemon {

class Relay final : public runtime::RankRelay {
 public:
  // `memory` holds the control pages of all ranks of the communicator, `rank`'s among them; it is
  // kept mapped.
  Relay(MappingRef memory, uint32_t rank, uint64_t sequence);

  void Begin() override {
    began_.store(true, std::memory_order_relaxed);
    Decide(shm::Passes(sequence_));
  }
  bool IsDone() const override;
  void Decline() override { Decide(shm::Declined(sequence_)); }

  // Of the operation's ranks, so many, those that the others wait for, as far as the relays tell;
  // none before Begin(). They hold what the ranks write there: for words only.
  std::vector<uint32_t> LateRanks(uint32_t ranks) const;

  // Wakes the rank if it waits: it looks whether the operation has ended.
  void Ring();

 private:
  void Decide(uint64_t decision);
  const shm::RelayControl& ControlOf(uint32_t rank) const;

  const MappingRef memory_;
  shm::RelayControl* const control_;
  const uint64_t sequence_;
  std::atomic<bool> began_{false};  // relaxed: it says nothing about other memory
};

}  // namespace spccl::daemon
