// Relays: memory that the ranks of a communicator share, all on one node, through which an
// all-reduce on ordinary memory passes slice by slice while the slices lie in the caches.
//
// Slice s are the bytes from s * kRelaySlotBytes on, of all ranks alike; OwnerOf(s) reduces it.
// Every other rank copies its slice into a slot of its own and hands it over. The owner reduces
// those slots and its own memory, writes the result to its own memory and into the slots, and hands
// these back; the others copy the result out. The daemon makes the memory, says whether an
// operation passes through it, and learns when each rank has all its results; it reads and writes
// no slot.
//
// Lies of a rank spoil results of its own communicator only: nobody takes bounds from here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spccl::shm {

// Fewer mean more sleeps (docs/adr/0013).
inline constexpr uint32_t kRelaySlots = 12;
inline constexpr size_t kRelaySlotBytes = size_t{256} << 10;

// One rank's. All zero at first; every value says which operation it is of, so that nothing is ever
// set back. One operation of a communicator runs at a time.
struct RelayControl {
  // Whose the slot is: HandedOver(o, s) while slice s's owner has it, HandedBack(o, s) from then
  // on. Written with release after the slot's bytes, read with acquire before them.
  struct Turn {
    alignas(64) std::atomic<uint64_t> value;
  };
  Turn turns[kRelaySlots];

  // By the daemon, of the rank's operation that runs: Passes() or Declined().
  alignas(64) std::atomic<uint64_t> decision;
  // By the rank: OpTag() of the last operation of which it has all results and gave all of its own.
  alignas(64) std::atomic<uint64_t> done;

  // The rank's threads that are about to sleep on the bell: each counts itself (sequentially
  // consistent), looks once more, and is woken by a change of the bell, a futex word.
  alignas(64) std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> bell;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A page of control a rank, then the slots, rank by rank.
inline constexpr size_t kRelayControlBytes = 4096;
static_assert(sizeof(RelayControl) <= kRelayControlBytes);

constexpr size_t RelaySlotsOffset(uint32_t ranks) {
  return ranks * kRelayControlBytes;
}
constexpr size_t RelayBytes(uint32_t ranks) {
  return RelaySlotsOffset(ranks) + ranks * kRelaySlots * kRelaySlotBytes;
}

// `sequence` is the operation's, in its rank's order of calls. 2^31 slices of 256 KiB are more than
// any memory.
constexpr uint64_t OpTag(uint64_t sequence) {
  return (sequence + 1) << 32;
}
constexpr uint64_t HandedOver(uint64_t sequence, uint64_t slice) {
  return OpTag(sequence) + 2 * slice;
}
constexpr uint64_t HandedBack(uint64_t sequence, uint64_t slice) {
  return OpTag(sequence) + 2 * slice + 1;
}
constexpr uint64_t Passes(uint64_t sequence) {
  return OpTag(sequence) + 1;
}
constexpr uint64_t Declined(uint64_t sequence) {
  return OpTag(sequence) + 2;
}

constexpr uint32_t OwnerOf(uint64_t slice, uint32_t ranks) {
  return static_cast<uint32_t>(slice % ranks);
}
// Which of its slots a rank has a slice in that others own.
constexpr uint32_t SlotOf(uint64_t slice, uint32_t rank, uint32_t ranks) {
  const uint64_t round = slice / ranks, owner = slice % ranks;
  return static_cast<uint32_t>((round * (ranks - 1) + (owner < rank ? owner : owner - 1)) %
                               kRelaySlots);
}

}  // namespace spccl::shm
