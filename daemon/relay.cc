#include "daemon/relay.h"

#include <utility>

#include "base/futex.h"

namespace spccl::daemon {

Relay::Relay(MappingRef memory, uint32_t rank, uint64_t sequence)
    : memory_(std::move(memory)),
      control_(
          reinterpret_cast<shm::RelayControl*>(memory_->data() + rank * shm::kRelayControlBytes)),
      sequence_(sequence) {}

bool Relay::IsDone() const {
  // Acquire: nothing that the rank does follows.
  return control_->done.load(std::memory_order_acquire) == shm::OpTag(sequence_);
}

void Relay::Decide(uint64_t decision) {
  // Sequentially consistent: before the look at `sleepers`.
  control_->decision.store(decision, std::memory_order_seq_cst);
  Ring();
}

void Relay::Ring() {
  if (control_->sleepers.load(std::memory_order_seq_cst) == 0) return;
  // Release: whoever sees the bell change sees what it was rung for.
  control_->bell.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&control_->bell);
}

}  // namespace spccl::daemon
