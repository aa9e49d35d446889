// The daemon's end of a rank's relay (proto/shm/relay.h).
#pragma once

#include "collective/runtime/slice_relay.h"
#include "daemon/reaper.h"
#include "proto/shm/relay.h"

namespace spccl::daemon {

class Relay final : public runtime::SliceRelay {
 public:
  // `memory` holds at least kRelayBytes; it is kept mapped.
  explicit Relay(MappingRef memory);

  size_t slot_bytes() const override { return shm::kRelaySlotBytes; }
  bool IsHere(uint64_t slice) const override;
  bool Await(uint64_t slice, int64_t until_ns) override;
  bool AskForNudge(uint64_t slice) override;
  std::byte* Slot(uint64_t slice) override;
  void HandBack(uint64_t slice) override;
  void Decline() override;

  // Wakes the client if it waits for a slice: it looks whether the operation has ended.
  void Ring();

 private:
  const MappingRef memory_;
  shm::RelayControl* const control_;
};

}  // namespace spccl::daemon
