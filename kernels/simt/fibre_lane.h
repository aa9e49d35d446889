// The fibre lane: the lane concept on the CPU, for tests. Every operation carries the place it was
// called from. Made and run by FibreMachine only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/simt/lane.h"
#include "kernels/simt/site.h"

namespace spccl::simt {

class FibreMachine;
struct LaneState;

enum class WaitKind : uint8_t { kSyncThreads, kSyncWarp, kBallot, kShuffle, kPause };

// What a lane waits for, and what it brings.
struct Wait {
  WaitKind kind;
  uint32_t mask = 0;
  uint32_t source = 0;  // of a shuffle
  uint64_t value = 0;   // of a shuffle; a ballot's predicate
  Site site;
};

class FibreLane {
 public:
  uint32_t Thread() const { return thread_; }
  uint32_t Threads() const { return threads_; }
  uint32_t Block() const { return block_; }
  uint32_t Blocks() const { return blocks_; }
  uint32_t Lane() const { return thread_ % kWarpLanes; }
  uint32_t Warp() const { return thread_ / kWarpLanes; }

  void SyncThreads(Site site = Site::Here()) {
    Meet({.kind = WaitKind::kSyncThreads, .site = site});
  }
  void SyncWarp(uint32_t mask, Site site = Site::Here()) {
    Meet({.kind = WaitKind::kSyncWarp, .mask = mask, .site = site});
  }
  void Pause(Site site = Site::Here()) { Meet({.kind = WaitKind::kPause, .site = site}); }

  uint32_t Ballot(uint32_t mask, bool predicate, Site site = Site::Here()) {
    return static_cast<uint32_t>(
        Meet({.kind = WaitKind::kBallot, .mask = mask, .value = predicate, .site = site}));
  }
  template <class T>
  T Shuffle(uint32_t mask, T value, uint32_t source, Site site = Site::Here()) {
    static_assert(std::is_unsigned_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    return static_cast<T>(Meet({.kind = WaitKind::kShuffle,
                                .mask = mask,
                                .source = source % kWarpLanes,
                                .value = value,
                                .site = site}));
  }
  template <class T>
  T ShuffleUp(uint32_t mask, T value, uint32_t delta, Site site = Site::Here()) {
    return Shuffle(mask, value, delta > Lane() ? Lane() : Lane() - delta, site);
  }
  template <class T>
  T ShuffleDown(uint32_t mask, T value, uint32_t delta, Site site = Site::Here()) {
    return Shuffle(mask, value, Lane() + delta >= kWarpLanes ? Lane() : Lane() + delta, site);
  }
  template <class T>
  T ShuffleXor(uint32_t mask, T value, uint32_t bits, Site site = Site::Here()) {
    return Shuffle(mask, value, Lane() ^ bits, site);
  }

  // Real atomics, so that ThreadSanitizer orders by them exactly what they order.
  template <class T>
  T LoadRelaxed(const T* p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
  }
  template <class T>
  T LoadAcquire(const T* p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
  }
  template <class T>
  void StoreRelaxed(T* p, std::type_identity_t<T> value) {
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
  }
  template <class T>
  void StoreRelease(T* p, std::type_identity_t<T> value) {
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
  }
  template <class T>
  T FetchAdd(T* p, std::type_identity_t<T> value) {
    return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
  }
  template <class T>
  T FetchOr(T* p, std::type_identity_t<T> value) {
    return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);
  }

  Vec16 Load16(const void* p, Site site = Site::Here()) {
    CheckAligned(p, site);
    Vec16 value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  Vec16 Load16Once(const void* p, Site site = Site::Here()) { return Load16(p, site); }
  void Store16(void* p, const Vec16& value, Site site = Site::Here()) {
    CheckAligned(p, site);
    std::memcpy(p, &value, sizeof(value));
  }
  void Store16Once(void* p, const Vec16& value, Site site = Site::Here()) {
    Store16(p, value, site);
  }

 private:
  friend class FibreMachine;
  FibreLane(FibreMachine* machine, LaneState* state, uint32_t thread, uint32_t threads,
            uint32_t block, uint32_t blocks)
      : machine_(machine),
        state_(state),
        thread_(thread),
        threads_(threads),
        block_(block),
        blocks_(blocks) {}

  // Waits until the machine has brought together what `wait` needs; returns what this lane gets.
  uint64_t Meet(const Wait& wait);
  void CheckAligned(const void* p, Site site) {
    if (reinterpret_cast<uintptr_t>(p) % sizeof(Vec16) != 0) FailMisaligned(p, site);
  }
  [[noreturn]] void FailMisaligned(const void* p, Site site);

  FibreMachine* machine_;
  LaneState* state_;
  uint32_t thread_;
  uint32_t threads_;
  uint32_t block_;
  uint32_t blocks_;
};
static_assert(SimtLane<FibreLane>);

}  // namespace spccl::simt
