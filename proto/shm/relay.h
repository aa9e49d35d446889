// A relay: shared memory of one rank through which an all-reduce on ordinary memory passes, slice
// by slice, while the slices lie in the caches. The client copies slice s of its input into slot s
// % kRelaySlots and hands it over; the daemon reduces the ranks' slots in place and hands them
// back; the client copies the result out. Slice s are the bytes from s * kRelaySlotBytes on, of all
// ranks alike.
//
// A relay is an offer beside the operation's buffers: the daemon takes it if all ranks offer one,
// else it declines and works on the buffers as without. Lies of a client spoil its own operation
// only: the daemon takes bounds from nowhere but the constants here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spccl::shm {

// Measured for float32 on two cores, 2 and 4 ranks, 64 MiB: slots of 128 to 256 KiB that make 1.5
// to 3 MiB a rank are alike within a tenth; fewer or smaller ones mean more sleeps and are slower.
inline constexpr uint32_t kRelaySlots = 12;
inline constexpr size_t kRelaySlotBytes = size_t{256} << 10;

// At the start of the memory; the slots follow from kRelaySlotsOffset on. Zero before the client
// submits the operation.
struct RelayControl {
  // Whose slot it is: HandedOver(s) while the daemon has slice s, HandedBack(s) from then on.
  // Written with release after the slot's bytes, read with acquire before them.
  struct Turn {
    alignas(64) std::atomic<uint32_t> value;
  };
  Turn turns[kRelaySlots];

  // Each side says that it is about to wait for the other (sequentially consistent, then looks once
  // more), and is woken by a change of its bell, a futex word. The daemon does not wait long: then
  // it asks for the session's doorbell. The client clears what it finds in `daemon_waits`.
  alignas(64) std::atomic<uint32_t> client_waits;
  std::atomic<uint32_t> client_bell;
  alignas(64) std::atomic<uint32_t> daemon_waits;  // kWantsBell, kWantsDoorbell
  std::atomic<uint32_t> daemon_bell;
  // By the daemon: the operation runs without the relay.
  alignas(64) std::atomic<uint32_t> declined;
};

inline constexpr uint32_t kWantsBell = 1, kWantsDoorbell = 2;

inline constexpr size_t kRelaySlotsOffset = 4096;
inline constexpr size_t kRelayBytes = kRelaySlotsOffset + kRelaySlots * kRelaySlotBytes;
static_assert(sizeof(RelayControl) <= kRelaySlotsOffset);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// 2^31 slices of 256 KiB are more than any memory.
constexpr uint32_t HandedOver(uint64_t slice) {
  return static_cast<uint32_t>(2 * slice + 1);
}
constexpr uint32_t HandedBack(uint64_t slice) {
  return static_cast<uint32_t>(2 * slice + 2);
}

}  // namespace spccl::shm
