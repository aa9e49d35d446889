#include "client/relay.h"

#include <algorithm>
#include <utility>

#include "base/futex.h"
#include "client/copy.h"

namespace spccl::client {
namespace {

// Nobody sleeps longer than this without looking again: the daemon may have died.
constexpr int64_t kLongestSleepNs = 100'000'000;

}  // namespace

Relay::Relay(std::shared_ptr<Region> memory, std::function<void()> ring_daemon)
    : memory_(std::move(memory)),
      control_(reinterpret_cast<shm::RelayControl*>(memory_->data())),
      ring_daemon_(std::move(ring_daemon)) {
  // Relaxed: the daemon sees the memory after the operation was submitted. A thread of its that
  // still looks for an earlier operation's next slice claims none.
  for (auto& turn : control_->turns) turn.value.store(0, std::memory_order_relaxed);
  control_->client_waits.store(0, std::memory_order_relaxed);
  control_->daemon_waits.store(0, std::memory_order_relaxed);
  control_->declined.store(0, std::memory_order_relaxed);
}

std::byte* Relay::Slot(uint64_t slice) const {
  return memory_->data() + shm::kRelaySlotsOffset + slice % shm::kRelaySlots * shm::kRelaySlotBytes;
}

void Relay::HandOver(uint64_t slice, const std::byte* from, size_t bytes) {
  CopyAhead(Slot(slice), from, bytes);
  // Release: the copy is complete. Sequentially consistent: the daemon stores `daemon_waits` and
  // then loads the turn, so that one of us sees the other's store.
  control_->turns[slice % shm::kRelaySlots].value.store(shm::HandedOver(slice),
                                                        std::memory_order_seq_cst);
  if (control_->daemon_waits.load(std::memory_order_seq_cst) == 0) return;
  // Relaxed: whoever is woken looks again, and says so again if it goes on waiting.
  const uint32_t wanted = control_->daemon_waits.exchange(0, std::memory_order_relaxed);
  if ((wanted & shm::kWantsBell) != 0) {
    // Release: whoever sees the bell change sees the slice.
    control_->daemon_bell.fetch_add(1, std::memory_order_release);
    FutexWakeAll(&control_->daemon_bell);
  }
  if ((wanted & shm::kWantsDoorbell) != 0) ring_daemon_();
}

bool Relay::IsBack(uint64_t slice) const {
  // Acquire: the result is there. Sequentially consistent: not before the store to `client_waits`.
  return control_->turns[slice % shm::kRelaySlots].value.load(std::memory_order_seq_cst) ==
         shm::HandedBack(slice);
}

bool Relay::AwaitBack(uint64_t slice, const std::function<bool()>& has_ended) {
  bool is_back = IsBack(slice);
  if (is_back) return true;
  control_->client_waits.store(1, std::memory_order_seq_cst);
  for (;;) {
    // Acquire: what the bell was rung for is seen below.
    const uint32_t seen = control_->client_bell.load(std::memory_order_acquire);
    is_back = IsBack(slice);
    if (is_back || control_->declined.load(std::memory_order_seq_cst) != 0) break;
    if (has_ended()) {
      // With success only after the slice was handed back, which may have been just now.
      is_back = IsBack(slice);
      break;
    }
    FutexWait(&control_->client_bell, seen, kLongestSleepNs);
  }
  // Relaxed: a bell too many does no harm.
  control_->client_waits.store(0, std::memory_order_relaxed);
  return is_back;
}

void Relay::Exchange(const void* send, void* recv, size_t bytes,
                     const std::function<bool()>& has_ended) {
  const auto* const input = static_cast<const std::byte*>(send);
  auto* const output = static_cast<std::byte*>(recv);
  const uint64_t slices = (bytes + shm::kRelaySlotBytes - 1) / shm::kRelaySlotBytes;
  const auto size_of = [bytes](uint64_t slice) {
    return std::min(shm::kRelaySlotBytes, bytes - slice * shm::kRelaySlotBytes);
  };
  uint64_t over = 0;
  for (uint64_t back = 0; back < slices; ++back) {
    for (; over < std::min<uint64_t>(slices, back + shm::kRelaySlots); ++over) {
      HandOver(over, input + over * shm::kRelaySlotBytes, size_of(over));
    }
    if (!AwaitBack(back, has_ended)) return;
    CopyPastCaches(output + back * shm::kRelaySlotBytes, Slot(back), size_of(back));
  }
}

}  // namespace spccl::client
