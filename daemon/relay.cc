#include "daemon/relay.h"

#include <utility>

#include "base/clock.h"
#include "base/futex.h"

namespace spccl::daemon {

Relay::Relay(MappingRef memory)
    : memory_(std::move(memory)), control_(reinterpret_cast<shm::RelayControl*>(memory_->data())) {}

bool Relay::IsHere(uint64_t slice) const {
  // Acquire: the client's copy is complete. Sequentially consistent: it must not come before a
  // store to `daemon_waits`.
  return control_->turns[slice % shm::kRelaySlots].value.load(std::memory_order_seq_cst) ==
         shm::HandedOver(slice);
}

bool Relay::Await(uint64_t slice, int64_t until_ns) {
  for (;;) {
    // Acquire: what the bell was rung for is seen below.
    const uint32_t seen = control_->daemon_bell.load(std::memory_order_acquire);
    // The client stores the turn, then loads `daemon_waits`: one of us sees the other's store.
    control_->daemon_waits.fetch_or(shm::kWantsBell, std::memory_order_seq_cst);
    if (IsHere(slice)) return true;
    const int64_t left_ns = until_ns - MonotonicNanos();
    if (left_ns <= 0) return false;
    FutexWait(&control_->daemon_bell, seen, left_ns);
  }
}

bool Relay::AskForNudge(uint64_t slice) {
  control_->daemon_waits.fetch_or(shm::kWantsDoorbell, std::memory_order_seq_cst);
  return IsHere(slice);
}

std::byte* Relay::Slot(uint64_t slice) {
  return memory_->data() + shm::kRelaySlotsOffset + slice % shm::kRelaySlots * shm::kRelaySlotBytes;
}

void Relay::HandBack(uint64_t slice) {
  // Release: the result is there. Sequentially consistent: before the look at `client_waits`.
  control_->turns[slice % shm::kRelaySlots].value.store(shm::HandedBack(slice),
                                                        std::memory_order_seq_cst);
  Ring();
}

void Relay::Decline() {
  control_->declined.store(1, std::memory_order_seq_cst);
  Ring();
}

void Relay::Ring() {
  if (control_->client_waits.load(std::memory_order_seq_cst) == 0) return;
  // Release: whoever sees the bell change sees what it was rung for.
  control_->client_bell.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&control_->client_bell);
}

}  // namespace spccl::daemon
