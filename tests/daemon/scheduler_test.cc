#include "daemon/scheduler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::IsOk;

// What the tasks of a test did, in order.
class Trace {
 public:
  void Add(const std::string& name) {
    std::lock_guard lock(mutex_);
    slices_.push_back(name);
    changed_.notify_all();
  }
  // The first `count` slices, once they have run.
  std::vector<std::string> Await(size_t count) {
    std::unique_lock lock(mutex_);
    const bool in_time =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return slices_.size() >= count; });
    EXPECT_TRUE(in_time) << slices_.size() << " of " << count;
    return slices_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> slices_;
};

// Runs `slices` slices; before slice `sleeps_before` it is idle until Release().
class CountingTask final : public runtime::Task {
 public:
  CountingTask(std::string name, int slices, Trace* trace, int sleeps_before = -1)
      : name_(std::move(name)), left_(slices), trace_(trace), sleeps_before_(sleeps_before) {}

  runtime::Progress RunOne(runtime::Scratch scratch) override {
    EXPECT_EQ(scratch.size(), runtime::kScratchBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.data()) % 64, 0u);
    {
      std::lock_guard lock(mutex_);
      if (left_ == 0) return runtime::Progress::kDone;
      if (left_ == sleeps_before_) {
        trace_->Add(name_ + " idle");
        return runtime::Progress::kIdle;
      }
      --left_;
    }
    trace_->Add(name_);
    return runtime::Progress::kRan;
  }
  void Cancel(absl::Status, int) override {}
  void Release() {
    {
      std::lock_guard lock(mutex_);
      sleeps_before_ = -1;
    }
    Wake();
  }

 private:
  const std::string name_;
  std::mutex mutex_;
  int left_;
  Trace* const trace_;
  int sleeps_before_;
};

// One slice, which lasts until Open().
class GateTask final : public runtime::Task {
 public:
  runtime::Progress RunOne(runtime::Scratch) override {
    std::unique_lock lock(mutex_);
    if (begun_ > 0) return runtime::Progress::kIdle;  // another thread has its only slice
    ++begun_;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return open_; });
    return runtime::Progress::kDone;
  }
  void Cancel(absl::Status, int) override {}
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool AwaitBegun() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_ > 0; });
  }
  int begun() {
    std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int begun_ = 0;
};

std::unique_ptr<Scheduler> MakeScheduler(uint32_t channels, bool pin = false) {
  // Each slice costs the same.
  const auto clock = [] {
    thread_local int64_t now_ns = 0;
    return now_ns += 100'000;
  };
  auto scheduler = Scheduler::Create({.channels = channels, .pin = pin, .thread_clock = clock});
  EXPECT_THAT(scheduler, IsOk());
  return *std::move(scheduler);
}

TEST(SchedulerTest, AlternatesBetweenJobsSliceBySlice) {
  Trace trace;
  const auto scheduler = MakeScheduler(1);
  const auto gate = std::make_shared<GateTask>();  // holds the only thread until both are queued
  scheduler->Add("gate", 1, gate);
  scheduler->Add("job-a", 2, std::make_shared<CountingTask>("a", 100, &trace));
  scheduler->Add("job-b", 3, std::make_shared<CountingTask>("b", 100, &trace));
  gate->Open();
  int ahead = 0;
  for (const std::string& slice : trace.Await(200)) {
    ahead += slice == "a" ? 1 : -1;
    ASSERT_LE(std::abs(ahead), 1);
  }
  EXPECT_EQ(ahead, 0);
}

TEST(SchedulerTest, SlicesGoByWeight) {
  Trace trace;
  const auto scheduler = MakeScheduler(1);
  const auto gate = std::make_shared<GateTask>();
  scheduler->Add("gate", 1, gate);
  scheduler->Add("job-a", 2, std::make_shared<CountingTask>("a", 100, &trace));
  scheduler->Add("job-b", 3, std::make_shared<CountingTask>("b", 100, &trace));
  scheduler->SetShare("job-a", {.weight = 4});
  gate->Open();
  const auto slices = trace.Await(100);
  EXPECT_NEAR(std::count(slices.begin(), slices.begin() + 100, "a"), 80, 2);
}

TEST(SchedulerTest, AJobHasNoMoreThreadsThanItMay) {
  const auto scheduler = MakeScheduler(2);
  const auto first = std::make_shared<GateTask>(), second = std::make_shared<GateTask>();
  scheduler->Add("bound", 1, first, {.weight = 1, .most = 1});
  scheduler->Add("bound", 2, second, {.weight = 1, .most = 1});
  const auto other = std::make_shared<GateTask>();
  scheduler->Add("free", 3, other);
  // Two threads, three tasks: the bound job's second one waits, and so it does when a thread is
  // free.
  ASSERT_TRUE(first->AwaitBegun() && other->AwaitBegun());
  other->Open();
  EXPECT_EQ(second->begun(), 0);
  scheduler->SetShare("bound", {.weight = 1, .most = 2});
  EXPECT_TRUE(second->AwaitBegun());
  first->Open();
  second->Open();
}

TEST(SchedulerTest, IdleTasksSleepUntilTheyAreWoken) {
  Trace trace;
  const auto scheduler = MakeScheduler(2);
  const auto sleepy = std::make_shared<CountingTask>("sleepy", 10, &trace, 5);
  scheduler->Add("job", 1, sleepy);
  // Five slices, then idle: once, or twice where both threads looked.
  trace.Await(6);
  sleepy->Release();
  int ran = 0;
  for (const std::string& slice : trace.Await(11)) ran += slice == "sleepy";
  while (ran < 10) {
    ran = 0;
    const auto slices = trace.Await(12);
    for (const std::string& slice : slices) ran += slice == "sleepy";
  }
  EXPECT_EQ(ran, 10);
}

TEST(SchedulerTest, WorkThatNoThreadTakesGrowsOld) {
  Trace trace;
  const auto scheduler = MakeScheduler(1);
  EXPECT_EQ(scheduler->DueNanos(MonotonicNanos()), 0);
  const auto gate = std::make_shared<GateTask>();
  scheduler->Add("gate", 1, gate);
  scheduler->Add("job", 2, std::make_shared<CountingTask>("a", 10, &trace));
  constexpr int64_t kLater = 1'000'000'000;
  EXPECT_GE(scheduler->DueNanos(MonotonicNanos() + kLater), kLater);
  gate->Open();
  trace.Await(10);
  const int64_t end_ns = MonotonicNanos() + 20 * kLater;
  while (scheduler->DueNanos(MonotonicNanos()) != 0 && MonotonicNanos() < end_ns) {
  }
  EXPECT_EQ(scheduler->DueNanos(MonotonicNanos()), 0);  // nothing is left
}

TEST(SchedulerTest, DropsTasksThatAreDone) {
  Trace trace;
  const auto scheduler = MakeScheduler(2);
  auto task = std::make_shared<CountingTask>("t", 4, &trace);
  const std::weak_ptr<CountingTask> weak = task;
  scheduler->Add("job", 1, std::move(task));
  trace.Await(4);
  const int64_t deadline = MonotonicNanos() + 20'000'000'000;
  while (!weak.expired() && MonotonicNanos() < deadline) std::this_thread::yield();
  EXPECT_TRUE(weak.expired());
}

TEST(SchedulerTest, RemovedTasksGetNoSlice) {
  Trace trace;
  const auto scheduler = MakeScheduler(1);
  const auto task = std::make_shared<CountingTask>("t", 4, &trace, 4);
  scheduler->Add("job", 1, task);
  trace.Await(1);  // idle
  scheduler->Remove(task.get());
  scheduler->Remove(task.get());
  task->Release();
  const auto other = std::make_shared<CountingTask>("other", 1, &trace);
  scheduler->Add("job", 2, other);
  for (const std::string& slice : trace.Await(2)) EXPECT_NE(slice, "t");
}

TEST(SchedulerTest, PinsItsThreads) {
  Trace trace;
  const auto scheduler = MakeScheduler(3, /*pin=*/true);
  EXPECT_EQ(scheduler->channels(), 3u);
  scheduler->Add("job", 1, std::make_shared<CountingTask>("t", 4, &trace));
  trace.Await(4);
}

TEST(SchedulerTest, SaysHowLongASliceRuns) {
  const auto scheduler = MakeScheduler(1);
  EXPECT_EQ(scheduler->OldestSliceNanos(MonotonicNanos()), 0);
  const auto slow = std::make_shared<GateTask>();
  scheduler->Add("job", 1, slow);
  const int64_t deadline = MonotonicNanos() + 20'000'000'000;
  while (scheduler->OldestSliceNanos(MonotonicNanos()) == 0 && MonotonicNanos() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_GT(scheduler->OldestSliceNanos(MonotonicNanos() + 1'000'000'000), 1'000'000'000);
  slow->Open();
  while (scheduler->OldestSliceNanos(MonotonicNanos()) != 0 && MonotonicNanos() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(scheduler->OldestSliceNanos(MonotonicNanos()), 0);
}

}  // namespace
}  // namespace spccl::daemon
