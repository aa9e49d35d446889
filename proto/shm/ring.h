// A single-producer, single-consumer ring of fixed-size slots in shared memory.
//
// The two sides are processes that do not trust each other. Each keeps its own index in private
// memory and publishes it; what it reads of the other side is a hint that is checked against the
// capacity before use. A consumer copies a slot once and checks the copy.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spccl::shm {

// The shared part, before the slots. Indices count slots since the start and wrap at 2^32.
struct alignas(64) RingControl {
  // Written by the producer (release) after the slots below it are written; also the futex word
  // that a sleeping consumer waits on.
  alignas(64) std::atomic<uint32_t> tail;
  // Written by the consumer (release) after the slots below it were copied.
  alignas(64) std::atomic<uint32_t> head;
  // Nonzero while a consumer sleeps or is about to: the producer then wakes it.
  std::atomic<uint32_t> sleepers;
};
static_assert(sizeof(RingControl) == 128);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

enum class RingState : uint8_t { kReady, kNotReady, kCorrupt };

template <typename Slot>
class Producer {
  static_assert(std::is_trivially_copyable_v<Slot>);

 public:
  // Borrows both; `capacity` is a power of two and comes from a trusted source, never from the
  // ring. `start` is the index of the first slot: 0 but in tests of the wrap at 2^32, where both
  // sides and the control must agree on it.
  Producer(RingControl* control, Slot* slots, uint32_t capacity, uint32_t start = 0)
      : control_(control), slots_(slots), mask_(capacity - 1), tail_(start) {}

  // kNotReady: full. kCorrupt: the consumer published an index that cannot be.
  RingState TryPush(const Slot& slot) {
    // Acquire: the consumer's copy of the slot that we overwrite must be complete.
    const uint32_t used = tail_ - control_->head.load(std::memory_order_acquire);
    if (used > mask_ + 1) return RingState::kCorrupt;
    if (used == mask_ + 1) return RingState::kNotReady;
    std::memcpy(&slots_[tail_ & mask_], &slot, sizeof(Slot));
    ++tail_;
    // Sequentially consistent: orders this store before the load of `sleepers` by NeedsWake(), as
    // the consumer orders its store to `sleepers` before its last look at `tail`.
    control_->tail.store(tail_, std::memory_order_seq_cst);
    return RingState::kReady;
  }

  bool NeedsWake() const { return control_->sleepers.load(std::memory_order_seq_cst) != 0; }
  std::atomic<uint32_t>* futex() { return &control_->tail; }
  uint32_t pushed() const { return tail_; }

 private:
  RingControl* control_;
  Slot* slots_;
  uint32_t mask_;
  uint32_t tail_;
};

template <typename Slot>
class Consumer {
  static_assert(std::is_trivially_copyable_v<Slot>);

 public:
  // As of Producer.
  Consumer(RingControl* control, const Slot* slots, uint32_t capacity, uint32_t start = 0)
      : control_(control), slots_(slots), mask_(capacity - 1), head_(start) {}

  // Copies the oldest slot to *out. kCorrupt: the producer published an index that cannot be.
  RingState TryPop(Slot* out) {
    // Acquire: pairs with the producer's store, so that the slot's bytes are visible.
    const uint32_t ready = control_->tail.load(std::memory_order_acquire) - head_;
    if (ready > mask_ + 1) return RingState::kCorrupt;
    if (ready == 0) return RingState::kNotReady;
    std::memcpy(out, &slots_[head_ & mask_], sizeof(Slot));
    ++head_;
    // Release: the copy is complete before the producer may overwrite the slot.
    control_->head.store(head_, std::memory_order_release);
    return RingState::kReady;
  }

  // The last look before a consumer sleeps. Sequentially consistent: it must not be ordered before
  // the consumer's own store to `sleepers`, or a push between the two would wake nobody.
  bool empty() const { return control_->tail.load(std::memory_order_seq_cst) == head_; }
  uint32_t popped() const { return head_; }
  std::atomic<uint32_t>* futex() { return &control_->tail; }
  std::atomic<uint32_t>* sleepers() { return &control_->sleepers; }

 private:
  RingControl* control_;
  const Slot* slots_;
  uint32_t mask_;
  uint32_t head_;
};

}  // namespace spccl::shm
