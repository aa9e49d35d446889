// The daemon's end of a rank's relay in one operation (proto/shm/relay.h).
#pragma once

#include <cstdint>

#include "collective/runtime/rank_relay.h"
#include "daemon/reaper.h"
#include "proto/shm/relay.h"

namespace spccl::daemon {

class Relay final : public runtime::RankRelay {
 public:
  // `memory` holds the control pages of all ranks of the communicator, `rank`'s among them; it is
  // kept mapped.
  Relay(MappingRef memory, uint32_t rank, uint64_t sequence);

  void Begin() override { Decide(shm::Passes(sequence_)); }
  bool IsDone() const override;
  void Decline() override { Decide(shm::Declined(sequence_)); }

  // Wakes the rank if it waits: it looks whether the operation has ended.
  void Ring();

 private:
  void Decide(uint64_t decision);

  const MappingRef memory_;
  shm::RelayControl* const control_;
  const uint64_t sequence_;
};

}  // namespace spccl::daemon
