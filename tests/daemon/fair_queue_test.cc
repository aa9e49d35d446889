#include "daemon/fair_queue.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kSliceNs = 100'000;

class NoTask final : public runtime::Task {
 public:
  runtime::Progress RunOne(runtime::Scratch) override { return runtime::Progress::kDone; }
  void Cancel(absl::Status, int) override {}
};

FairQueue::EntryRef Add(FairQueue& queue, const std::string& job, uint64_t comm,
                        ChannelShare share = {}) {
  return queue.Add(job, comm, std::make_shared<NoTask>(), share);
}

// One thread, slices that cost the same.
std::map<std::string, int> CountTurns(FairQueue& queue, int turns) {
  std::map<std::string, int> counts;
  for (int i = 0; i < turns; ++i) {
    const FairQueue::Turn turn = queue.Next();
    ++counts[turn.entry->job_id()];
    ++counts[turn.entry->job_id() + "/" + std::to_string(turn.entry->comm_id)];
    queue.End(turn, kSliceNs);
  }
  return counts;
}

// Channel threads in made-up time, which work off a queue.
class Machine {
 public:
  using CostOf = std::function<int64_t(const std::string& job)>;
  Machine(FairQueue* queue, size_t channels, CostOf cost_of)
      : queue_(queue), channels_(channels), cost_of_(std::move(cost_of)) {}

  // Until `end_ns`; calls on_start(job, now) for each slice that starts and on_end for each that
  // ends.
  void RunUntil(int64_t end_ns) {
    for (;;) {
      StartAll();
      const auto first =
          std::min_element(channels_.begin(), channels_.end(),
                           [](const Channel& a, const Channel& b) { return EndOf(a) < EndOf(b); });
      if (EndOf(*first) > end_ns) break;
      now_ns_ = first->end_ns;
      queue_->End(*first->turn, first->cost_ns);
      time_[first->turn->entry->job_id()] += first->cost_ns;
      const FairQueue::EntryRef entry = first->turn->entry;
      first->turn.reset();
      if (on_end) on_end(entry);
    }
    now_ns_ = end_ns;
    StartAll();
  }
  int64_t now_ns() const { return now_ns_; }
  // The time of the slices that have ended.
  double TimeOf(const std::string& job) { return static_cast<double>(time_[job]); }
  int RunningOf(const std::string& job) const {
    return static_cast<int>(
        std::count_if(channels_.begin(), channels_.end(), [&](const Channel& channel) {
          return channel.turn && channel.turn->entry->job_id() == job;
        }));
  }

  std::function<void(const std::string& job, int64_t now_ns)> on_start;
  std::function<void(const FairQueue::EntryRef& entry)> on_end;

 private:
  struct Channel {
    std::optional<FairQueue::Turn> turn;
    int64_t end_ns = 0, cost_ns = 0;
  };
  static int64_t EndOf(const Channel& channel) {
    return channel.turn ? channel.end_ns : std::numeric_limits<int64_t>::max();
  }
  void StartAll() {
    for (Channel& channel : channels_) {
      if (channel.turn) continue;
      FairQueue::Turn turn = queue_->Next();
      if (!turn.entry) return;
      const std::string& job = turn.entry->job_id();
      channel.cost_ns = cost_of_(job);
      channel.end_ns = now_ns_ + channel.cost_ns;
      if (on_start) on_start(job, now_ns_);
      channel.turn = std::move(turn);
    }
  }

  FairQueue* const queue_;
  std::vector<Channel> channels_;
  const CostOf cost_of_;
  int64_t now_ns_ = 0;
  std::map<std::string, int64_t> time_;
};

TEST(FairQueueTest, JobsShareEquallyWhateverTheirNumberOfCommunicators) {
  FairQueue queue;
  for (uint64_t comm = 1; comm <= 4; ++comm) Add(queue, "many", comm);
  Add(queue, "one", 9);
  const auto counts = CountTurns(queue, 800);
  EXPECT_EQ(counts.at("many"), 400);
  EXPECT_EQ(counts.at("one"), 400);
  for (uint64_t comm = 1; comm <= 4; ++comm) {
    EXPECT_EQ(counts.at("many/" + std::to_string(comm)), 100);
  }
}

TEST(FairQueueTest, TimeGoesByWeightOnAnyNumberOfThreads) {
  for (const size_t channels : {1, 2, 5, 16}) {
    FairQueue queue;
    Add(queue, "two", 1, {.weight = 2});
    Add(queue, "one", 2);
    Machine machine(&queue, channels, [](const std::string&) { return kSliceNs; });
    machine.RunUntil(3000 * kSliceNs);
    EXPECT_NEAR(machine.TimeOf("two") / machine.TimeOf("one"), 2, 0.02) << channels;
    EXPECT_NEAR(machine.TimeOf("two") + machine.TimeOf("one"),
                3000.0 * kSliceNs * static_cast<double>(channels), 16.0 * kSliceNs);
  }
}

TEST(FairQueueTest, SlicesThatCostMoreAreFewer) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  FairQueue queue;
  Add(queue, "dear", 1, {.weight = 3});
  Add(queue, "cheap", 2);
  Machine machine(&queue, 2, [&](const std::string& job) {
    const auto spread = static_cast<int64_t>(random() % kSliceNs);
    return (job == "dear" ? 10 : 1) * (kSliceNs / 2 + spread);
  });
  machine.RunUntil(20'000 * kSliceNs);
  EXPECT_NEAR(machine.TimeOf("dear") / machine.TimeOf("cheap"), 3, 0.1);
}

TEST(FairQueueTest, WhatSlicesCostIsToldAlsoOfTheLast) {
  FairQueue queue;
  const auto time = std::make_shared<ChannelTime>(7);
  const auto entry = queue.Add("a", 1, std::make_shared<NoTask>(), {}, time);
  queue.End(queue.Next(), 100);
  const FairQueue::Turn last = queue.Next();
  queue.Remove(entry);
  queue.End(last, 30);
  EXPECT_EQ(*time, 137);
}

TEST(FairQueueTest, AChangedWeightCountsFromThenOn) {
  FairQueue queue;
  Add(queue, "a", 1);
  Add(queue, "b", 2);
  Machine machine(&queue, 2, [](const std::string&) { return kSliceNs; });
  machine.RunUntil(1000 * kSliceNs);
  EXPECT_NEAR(machine.TimeOf("a") / machine.TimeOf("b"), 1, 0.02);
  queue.SetShare("a", {.weight = 4});
  queue.SetShare("nobody", {.weight = 4});
  const double a = machine.TimeOf("a"), b = machine.TimeOf("b");
  machine.RunUntil(2000 * kSliceNs);
  EXPECT_NEAR((machine.TimeOf("a") - a) / (machine.TimeOf("b") - b), 4, 0.1);
}

TEST(FairQueueTest, AJobThatComesLateGetsNoMoreThanItsShare) {
  FairQueue queue;
  Add(queue, "early", 1);
  CountTurns(queue, 100);
  Add(queue, "late", 2);
  const auto counts = CountTurns(queue, 100);
  EXPECT_EQ(counts.at("early"), 50);
  EXPECT_EQ(counts.at("late"), 50);
}

TEST(FairQueueTest, AJobThatWakesHasSavedNothingUp) {
  FairQueue queue;
  const auto sleeper = Add(queue, "sleeper", 1);
  Add(queue, "busy", 2);
  EXPECT_EQ(CountTurns(queue, 10).at("sleeper"), 5);
  EXPECT_TRUE(queue.Park(sleeper));
  EXPECT_FALSE(queue.Park(sleeper));
  EXPECT_EQ(CountTurns(queue, 1000).at("busy"), 1000);
  EXPECT_TRUE(queue.Unpark(sleeper));
  EXPECT_FALSE(queue.Unpark(sleeper));
  EXPECT_EQ(CountTurns(queue, 100).at("sleeper"), 50);
}

// However heavy the others are, and however much waits of them.
TEST(FairQueueTest, AJobThatWasIdleWaitsForTheShortestOfTheRunningSlicesOnly) {
  FairQueue queue;
  for (uint64_t comm = 1; comm <= 5; ++comm) {
    Add(queue, "bulk" + std::to_string(comm), comm, {.weight = 100});
  }
  Machine machine(&queue, 2,
                  [](const std::string& job) { return job == "small" ? kSliceNs / 10 : kSliceNs; });
  int64_t came_ns = 0;
  int started = 0;
  machine.on_start = [&](const std::string& job, int64_t now_ns) {
    if (job != "small") return;
    ++started;
    EXPECT_LE(now_ns - came_ns, kSliceNs);
  };
  machine.on_end = [&](const FairQueue::EntryRef& entry) {
    if (entry->job_id() == "small") queue.Remove(entry);
  };
  for (int i = 1; i <= 200; ++i) {
    machine.RunUntil(i * 50 * kSliceNs + i * kSliceNs / 7);
    came_ns = machine.now_ns();
    Add(queue, "small", 99);
  }
  machine.RunUntil(machine.now_ns() + 10 * kSliceNs);
  EXPECT_EQ(started, 200);
}

// One that has nothing queued between its operations is not new with each of them.
TEST(FairQueueTest, AJobOfShortOperationsGetsNoMoreThanItsShare) {
  FairQueue queue;
  Add(queue, "bulk", 1, {.weight = 3});
  Add(queue, "short", 2);
  Machine machine(&queue, 1, [](const std::string&) { return kSliceNs; });
  machine.on_end = [&](const FairQueue::EntryRef& entry) {
    if (entry->job_id() != "short") return;
    queue.Remove(entry);
    Add(queue, "short", 2);
  };
  machine.RunUntil(4000 * kSliceNs);
  EXPECT_NEAR(machine.TimeOf("bulk") / machine.TimeOf("short"), 3, 0.05);
}

TEST(FairQueueTest, AJobHasNoMoreThreadsThanItMay) {
  FairQueue queue;
  Add(queue, "bound", 1, {.weight = 10, .most = 2});
  Machine machine(&queue, 4, [](const std::string&) { return kSliceNs; });
  for (int i = 1; i <= 10; ++i) {
    machine.RunUntil(i * 10 * kSliceNs + 1);
    EXPECT_EQ(machine.RunningOf("bound"), 2);
  }
  // What it may not have is there for others, and its share stays its share of the rest.
  Add(queue, "free", 2);
  machine.RunUntil(machine.now_ns() + 10 * kSliceNs);
  EXPECT_EQ(machine.RunningOf("bound"), 2);
  EXPECT_EQ(machine.RunningOf("free"), 2);
  queue.SetShare("bound", {.weight = 10, .most = 3});
  machine.RunUntil(machine.now_ns() + 10 * kSliceNs);
  EXPECT_EQ(machine.RunningOf("bound"), 3);
}

TEST(FairQueueTest, ParkedEntriesLoseTheirTurns) {
  FairQueue queue;
  const auto a = Add(queue, "a", 1);
  const auto also_a = Add(queue, "a", 1);
  queue.Park(a);
  EXPECT_EQ(queue.Next().entry, also_a);
  queue.Park(also_a);
  EXPECT_EQ(queue.Next().entry, nullptr);
  queue.Unpark(a);
  EXPECT_EQ(queue.Next().entry, a);
}

TEST(FairQueueTest, ForgetsWhatIsRemoved) {
  FairQueue queue;
  const auto task = std::make_shared<NoTask>();
  const auto entry = queue.Add("a", 1, task);
  EXPECT_EQ(queue.Find(task.get()), entry);
  const FairQueue::Turn turn = queue.Next();
  queue.Remove(entry);
  queue.Remove(entry);
  EXPECT_FALSE(queue.Unpark(entry));
  EXPECT_EQ(queue.Next().entry, nullptr);
  EXPECT_EQ(queue.Find(task.get()), nullptr);
  queue.End(turn, kSliceNs);  // it ran still
  Add(queue, "b", 2);
  CountTurns(queue, 100);
  Add(queue, "b", 3);
  EXPECT_EQ(queue.jobs(), 1u);  // a has paid
}

}  // namespace
}  // namespace spccl::daemon
