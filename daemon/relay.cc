#include "daemon/relay.h"

#include <algorithm>
#include <limits>
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

const shm::RelayControl& Relay::ControlOf(uint32_t rank) const {
  return *reinterpret_cast<const shm::RelayControl*>(memory_->data() +
                                                     rank * shm::kRelayControlBytes);
}

std::vector<uint32_t> Relay::LateRanks(uint32_t ranks) const {
  std::vector<uint32_t> late;
  if (!began_.load(std::memory_order_relaxed)) return late;
  const uint64_t begin = shm::OpTag(sequence_), end = shm::OpTag(sequence_ + 1);
  // The first slice that somebody has handed over and not got back: ranks take slices in order, so
  // what holds that one up waits for nothing itself.
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t first = kNone;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (const auto& turn : ControlOf(rank).turns) {
      const uint64_t value = turn.value.load(std::memory_order_acquire);
      const bool handed_over = value >= begin && value < end && (value - begin) % 2 == 0;
      if (handed_over) first = std::min(first, (value - begin) / 2);
    }
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const shm::RelayControl& control = ControlOf(rank);
    if (first == kNone) {
      if (control.done.load(std::memory_order_acquire) != begin) late.push_back(rank);
    } else if (rank != shm::OwnerOf(first, ranks)) {
      const auto& turn = control.turns[shm::SlotOf(first, rank, ranks)];
      const uint64_t value = turn.value.load(std::memory_order_acquire);
      if (value < shm::HandedOver(sequence_, first)) late.push_back(rank);
    }
  }
  // All have handed it over: it is the owner's turn.
  if (late.empty() && first != kNone) late.push_back(shm::OwnerOf(first, ranks));
  return late;
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
