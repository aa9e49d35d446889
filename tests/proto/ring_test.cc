#include "proto/shm/ring.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"
#include "gtest/gtest.h"
#include "proto/shm/slot.h"

namespace spccl::shm {
namespace {

constexpr uint32_t kCapacity = 8;
constexpr int64_t kMinute = 60'000'000'000;

// Every word says which slot it is, so that a torn or stale copy shows.
struct TestSlot {
  std::array<uint32_t, 16> words;
};

TestSlot SlotOf(uint32_t number) {
  TestSlot slot;
  slot.words.fill(number);
  return slot;
}

bool IsSlotOf(const TestSlot& slot, uint32_t number) {
  for (const uint32_t word : slot.words) {
    if (word != number) return false;
  }
  return true;
}

struct TestRing {
  explicit TestRing(uint32_t start = 0)
      : producer(&control, slots.data(), kCapacity, start),
        consumer(&control, slots.data(), kCapacity, start) {
    control.tail = start;
    control.head = start;
  }
  RingControl control{};
  std::array<TestSlot, kCapacity> slots{};
  Producer<TestSlot> producer;
  Consumer<TestSlot> consumer;
};

TEST(RingTest, StartsEmpty) {
  TestRing ring;
  TestSlot slot;
  EXPECT_TRUE(ring.consumer.empty());
  EXPECT_EQ(ring.consumer.TryPop(&slot), RingState::kNotReady);
}

TEST(RingTest, HoldsExactlyItsCapacity) {
  TestRing ring;
  for (uint32_t i = 0; i < kCapacity; ++i) {
    ASSERT_EQ(ring.producer.TryPush(SlotOf(i)), RingState::kReady);
  }
  EXPECT_EQ(ring.producer.TryPush(SlotOf(99)), RingState::kNotReady);
  EXPECT_EQ(ring.producer.pushed(), kCapacity);
  TestSlot slot;
  ASSERT_EQ(ring.consumer.TryPop(&slot), RingState::kReady);
  EXPECT_TRUE(IsSlotOf(slot, 0)) << "a refused push must not overwrite the oldest slot";
  EXPECT_EQ(ring.producer.TryPush(SlotOf(kCapacity)), RingState::kReady);
  for (uint32_t i = 1; i <= kCapacity; ++i) {
    ASSERT_EQ(ring.consumer.TryPop(&slot), RingState::kReady);
    EXPECT_TRUE(IsSlotOf(slot, i));
  }
  EXPECT_TRUE(ring.consumer.empty());
}

TEST(RingTest, IndicesWrapAtTwoToThe32) {
  const uint32_t start = std::numeric_limits<uint32_t>::max() - kCapacity / 2;
  TestRing ring(start);
  TestSlot slot;
  uint32_t popped = 0;
  for (uint32_t pushed = 0; pushed < 4 * kCapacity;) {
    while (ring.producer.TryPush(SlotOf(pushed)) == RingState::kReady) ++pushed;
    ASSERT_EQ(pushed - popped, kCapacity);
    while (ring.consumer.TryPop(&slot) == RingState::kReady) {
      ASSERT_TRUE(IsSlotOf(slot, popped)) << "slot " << popped;
      ++popped;
    }
    ASSERT_EQ(popped, pushed);
  }
  EXPECT_EQ(ring.control.tail.load(), start + popped);
  EXPECT_EQ(ring.control.head.load(), start + popped);
  EXPECT_LT(start + popped, start) << "the test must have wrapped";
}

TEST(RingTest, AProducerThatLiesAboutItsIndexIsFoundOut) {
  TestRing ring;
  ASSERT_EQ(ring.producer.TryPush(SlotOf(1)), RingState::kReady);
  TestSlot slot = SlotOf(7);
  // Behind the consumer, too far ahead by one, and far away.
  for (const uint32_t lie : {~0u, kCapacity + 1, 1u << 31}) {
    ring.control.tail.store(lie);
    EXPECT_EQ(ring.consumer.TryPop(&slot), RingState::kCorrupt) << lie;
    EXPECT_TRUE(IsSlotOf(slot, 7)) << "nothing is copied from a corrupt ring";
  }
  EXPECT_EQ(ring.consumer.popped(), 0u);
}

TEST(RingTest, AConsumerThatLiesAboutItsIndexIsFoundOut) {
  TestRing ring;
  for (uint32_t i = 0; i < kCapacity; ++i) {
    ASSERT_EQ(ring.producer.TryPush(SlotOf(i)), RingState::kReady);
  }
  // Ahead of the producer, before what the ring can hold, and far away.
  for (const uint32_t lie : {kCapacity + 1, ~0u, 1u << 31}) {
    ring.control.head.store(lie);
    EXPECT_EQ(ring.producer.TryPush(SlotOf(99)), RingState::kCorrupt) << lie;
  }
  EXPECT_EQ(ring.producer.pushed(), kCapacity);
  for (uint32_t i = 0; i < kCapacity; ++i) EXPECT_TRUE(IsSlotOf(ring.slots[i], i));
}

TEST(RingTest, EachSideKeepsItsOwnIndex) {
  TestRing ring;
  ASSERT_EQ(ring.producer.TryPush(SlotOf(1)), RingState::kReady);
  TestSlot slot;
  ASSERT_EQ(ring.consumer.TryPop(&slot), RingState::kReady);
  // A side's own published index, overwritten by the other process, changes nothing for it.
  ring.control.tail.store(5);
  ASSERT_EQ(ring.producer.TryPush(SlotOf(2)), RingState::kReady);
  ring.control.head.store(77);
  ASSERT_EQ(ring.consumer.TryPop(&slot), RingState::kReady);
  EXPECT_TRUE(IsSlotOf(slot, 2));
}

// Two threads, busy on both sides, from just below the wrap.
TEST(RingTest, CarriesEverySlotOnceAndInOrderBetweenThreads) {
  TestRing ring(std::numeric_limits<uint32_t>::max() - 1000);
  constexpr uint32_t kSlots = 20'000;
  std::atomic<bool> corrupt{false};
  std::jthread producer([&] {
    for (uint32_t i = 0; i < kSlots && !corrupt;) {
      const RingState state = ring.producer.TryPush(SlotOf(i));
      if (state == RingState::kCorrupt) corrupt = true;
      if (state == RingState::kReady) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint32_t i = 0; i < kSlots && !corrupt;) {
    TestSlot slot;
    const RingState state = ring.consumer.TryPop(&slot);
    if (state == RingState::kCorrupt) corrupt = true;
    if (state == RingState::kReady) {
      if (!IsSlotOf(slot, i)) corrupt = true;
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
  EXPECT_FALSE(corrupt);
}

// Pops one slot as a consumer that sleeps does: announce, look once more, sleep. False: time ran
// out, that is, a wake-up was lost.
bool PopOrSleep(Consumer<TestSlot>* consumer, TestSlot* slot) {
  while (consumer->TryPop(slot) != RingState::kReady) {
    consumer->sleepers()->store(1, std::memory_order_seq_cst);
    bool in_time = true;
    if (consumer->empty()) in_time = FutexWait(consumer->futex(), consumer->popped(), kMinute);
    consumer->sleepers()->store(0, std::memory_order_seq_cst);
    if (!in_time) return false;
  }
  return true;
}

TEST(RingTest, ASleepingConsumerMissesNoPush) {
  TestRing there(std::numeric_limits<uint32_t>::max() - 500);
  TestRing back(std::numeric_limits<uint32_t>::max() - 500);
  constexpr uint32_t kRounds = 2'000;
  const auto push = [](Producer<TestSlot>* producer, uint32_t number) {
    ASSERT_EQ(producer->TryPush(SlotOf(number)), RingState::kReady);
    if (producer->NeedsWake()) FutexWakeAll(producer->futex());
  };
  std::jthread echo([&] {
    for (uint32_t i = 0; i < kRounds; ++i) {
      TestSlot slot;
      ASSERT_TRUE(PopOrSleep(&there.consumer, &slot)) << "round " << i;
      push(&back.producer, slot.words[0]);
    }
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    push(&there.producer, i);
    TestSlot slot;
    ASSERT_TRUE(PopOrSleep(&back.consumer, &slot)) << "round " << i;
    ASSERT_TRUE(IsSlotOf(slot, i));
  }
}

TEST(RingTest, TheSegmentsSlotsAndControlsDoNotShareCacheLines) {
  EXPECT_EQ(offsetof(Segment, submission_control) % 64, 0u);
  EXPECT_EQ(offsetof(Segment, completion_control) % 64, 0u);
  EXPECT_EQ(offsetof(Segment, completions) % 64, 0u);
  EXPECT_EQ(offsetof(RingControl, head) - offsetof(RingControl, tail), 64u);
}

}  // namespace
}  // namespace spccl::shm
