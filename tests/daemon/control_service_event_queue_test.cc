#include "daemon/control_service_event_queue.h"

#include <memory>
#include <string>

#include "daemon/event_log.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

constexpr Caller kAdministrator = {.uid = 0, .administrator = true};

EventPtr EventOf(uint64_t sequence, size_t message_bytes) {
  Event event{};
  event.sequence = sequence;
  event.message.assign(message_bytes, 'x');
  return std::make_shared<const Event>(std::move(event));
}

TEST(EventQueueTest, OfMoreThanFitsInNumberTheRestIsLostAndCounted) {
  EventQueue queue(kAdministrator, 0);
  for (uint64_t i = 1; i <= EventQueue::kMostEvents + 3; ++i) queue.Push(EventOf(i, 0));
  EventQueue::Entry entry;
  for (uint64_t i = 1; i <= EventQueue::kMostEvents; ++i) {
    ASSERT_TRUE(queue.Pop(0, &entry));
    EXPECT_EQ(entry.event->sequence, i);
    EXPECT_EQ(entry.lost, 0u);
  }
  EXPECT_FALSE(queue.Pop(0, &entry));
  queue.Push(EventOf(EventQueue::kMostEvents + 4, 0));
  ASSERT_TRUE(queue.Pop(0, &entry));
  EXPECT_EQ(entry.lost, 3u);
}

TEST(EventQueueTest, OfMoreThanFitsInBytesTheRestIsLostAndCounted) {
  EventQueue queue(kAdministrator, 0);
  const size_t message_bytes = EventQueue::kMostBytes / 4;  // three with all that belongs to them
  for (uint64_t i = 1; i <= 9; ++i) queue.Push(EventOf(i, message_bytes));
  EventQueue::Entry entry;
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(queue.Pop(0, &entry));
    EXPECT_EQ(entry.event->sequence, i);
  }
  EXPECT_FALSE(queue.Pop(0, &entry));
  for (uint64_t i = 10; i <= 12; ++i) queue.Push(EventOf(i, message_bytes));  // there is room again
  ASSERT_TRUE(queue.Pop(0, &entry));
  EXPECT_EQ(entry.event->sequence, 10u);
  EXPECT_EQ(entry.lost, 6u);
  ASSERT_TRUE(queue.Pop(0, &entry));
  ASSERT_TRUE(queue.Pop(0, &entry));
  EXPECT_EQ(entry.event->sequence, 12u);
}

TEST(EventQueueTest, AllThatIsKeptFits) {
  EventQueue queue(kAdministrator, 1);
  for (uint64_t i = 1; i <= EventLog::kKept; ++i) queue.Push(EventOf(i, 32 << 10));
  EventQueue::Entry entry;
  for (uint64_t i = 1; i <= EventLog::kKept; ++i) {
    ASSERT_TRUE(queue.Pop(0, &entry));
    EXPECT_EQ(entry.lost, 0u);
  }
}

TEST(EventQueueTest, TheSendsOfAnEventCountToo) {
  auto sends = std::make_shared<SendsInfo>();
  sends->steps.resize(EventQueue::kMostBytes / sizeof(sends->steps[0]) / 2 + 1);
  Event event{};
  event.sends = std::move(sends);
  const auto shared = std::make_shared<const Event>(std::move(event));
  EventQueue queue(kAdministrator, 0);
  for (int i = 0; i < 2; ++i) queue.Push(shared);  // each is more than half of what fits
  EventQueue::Entry entry;
  EXPECT_TRUE(queue.Pop(0, &entry));
  EXPECT_FALSE(queue.Pop(0, &entry));
}

}  // namespace
}  // namespace spccl::daemon
