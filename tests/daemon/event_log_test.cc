#include "daemon/event_log.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;

Event Named(std::string kind) {
  Event event{};
  event.kind = std::move(kind);
  return event;
}

TEST(EventLogTest, NumbersAndDelivers) {
  EventLog log;
  std::vector<uint64_t> seen;
  log.Record(Named("before"));
  const auto subscriber = std::make_shared<Subscriber>(
      [&seen](const EventPtr& event) { seen.push_back(event->sequence); });
  log.Add(subscriber, 0);
  log.Record(Named("a"));
  log.Record(Named("b"));
  EXPECT_THAT(seen, ElementsAre(2, 3));
  subscriber->Cancel();
  log.Record(Named("c"));
  EXPECT_THAT(seen, ElementsAre(2, 3));
}

TEST(EventLogTest, KeepsTheLastOnes) {
  EventLog log;
  for (size_t i = 0; i < EventLog::kKept + 10; ++i) log.Record(Named("x"));
  std::vector<uint64_t> seen;
  const auto collect = [&seen](const EventPtr& event) { seen.push_back(event->sequence); };
  log.Add(std::make_shared<Subscriber>(collect), 1);
  ASSERT_EQ(seen.size(), EventLog::kKept);
  EXPECT_EQ(seen.front(), 11u);
  EXPECT_EQ(seen.back(), EventLog::kKept + 10);
  seen.clear();
  log.Add(std::make_shared<Subscriber>(collect), EventLog::kKept + 9);
  EXPECT_THAT(seen, ElementsAre(EventLog::kKept + 9, EventLog::kKept + 10));
}

TEST(EventLogTest, AllShareOneCopyOfAnEvent) {
  EventLog log;
  std::vector<EventPtr> seen;
  const auto collect = [&seen](const EventPtr& event) { seen.push_back(event); };
  log.Add(std::make_shared<Subscriber>(collect), 0);
  log.Add(std::make_shared<Subscriber>(collect), 0);
  log.Record(Named("a"));
  log.Add(std::make_shared<Subscriber>(collect), 1);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

// On an idle node no event tells the log that they have ended.
TEST(EventLogTest, WithoutEventsThoseThatWereCancelledAreDroppedToo) {
  EventLog log;
  std::vector<std::shared_ptr<Subscriber>> live;
  std::vector<uint64_t> seen;
  for (size_t i = 0; i < 2 * EventLog::kLeastSweep; ++i) {
    live.push_back(std::make_shared<Subscriber>(
        [&seen](const EventPtr& event) { seen.push_back(event->sequence); }));
    log.Add(live.back(), 0);
  }
  for (int i = 0; i < 1000; ++i) {
    const auto ended = std::make_shared<Subscriber>([](const EventPtr&) {});
    log.Add(ended, 1);
    ended->Cancel();
    ASSERT_LE(log.subscribers(), 2 * live.size());
  }
  log.Record(Named("a"));
  EXPECT_EQ(seen.size(), live.size());
}

TEST(EventLogTest, OneThatWasCancelledBeforeIsNotAdded) {
  EventLog log;
  const auto ended = std::make_shared<Subscriber>([](const EventPtr&) {});
  ended->Cancel();
  log.Add(ended, 0);
  EXPECT_EQ(log.subscribers(), 0u);
}

}  // namespace
}  // namespace spccl::daemon
