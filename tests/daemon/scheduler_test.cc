#include "daemon/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
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
  ASSERT_TRUE(gate->AwaitBegun());
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

// Where threads may run: hardware threads, by number.
using Places = std::set<int>;

Places PlacesOfThread() {
  cpu_set_t set;
  Places places;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) places.insert(cpu);
  }
  return places;
}

void KeepThreadTo(const Places& places) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : places) CPU_SET(cpu, &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
}

// The core of a hardware thread, as the kernel names its threads: "0,4".
std::string CoreOf(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  std::string threads;
  std::getline(file, threads);
  return threads;
}

// Holds each thread that comes until `threads` have, and notes where each may run.
class PlaceTask final : public runtime::Task {
 public:
  explicit PlaceTask(size_t threads) : threads_(threads) {}
  runtime::Progress RunOne(runtime::Scratch) override {
    std::unique_lock lock(mutex_);
    if (places_.size() == threads_) return runtime::Progress::kDone;
    places_.push_back(PlacesOfThread());
    changed_.notify_all();
    AllCame(lock);
    return runtime::Progress::kDone;
  }
  void Cancel(absl::Status, int) override {}
  std::vector<Places> Await() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(AllCame(lock));
    return places_;
  }

 private:
  bool AllCame(std::unique_lock<std::mutex>& lock) {
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return places_.size() == threads_; });
  }

  const size_t threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Places> places_;
};

std::vector<Places> PlacesOfChannels(uint32_t channels) {
  const auto scheduler = MakeScheduler(channels, /*pin=*/true);
  const auto task = std::make_shared<PlaceTask>(scheduler->channels());
  scheduler->Add("job", 1, task);
  return task->Await();
}

TEST(SchedulerTest, PinsItsThreadsToACoreEach) {
  const Places usable = PlacesOfThread();
  std::map<std::string, Places> cores;
  for (const int cpu : usable) cores[CoreOf(cpu)].insert(cpu);
  std::map<Places, int> threads;
  for (const Places& places : PlacesOfChannels(3)) {
    ASSERT_FALSE(places.empty());
    EXPECT_EQ(places, cores[CoreOf(*places.begin())]);
    ++threads[places];
  }
  EXPECT_EQ(threads.size(), std::min<size_t>(3, cores.size()));
}

TEST(SchedulerTest, PinsItsThreadsWhereItMayRunOnly) {
  const Places usable = PlacesOfThread();
  for (const int cpu : {*usable.begin(), *usable.rbegin()}) {
    KeepThreadTo({cpu});
    EXPECT_THAT(PlacesOfChannels(2), ::testing::ElementsAre(Places{cpu}, Places{cpu}));
    EXPECT_THAT(PlacesOfChannels(0), ::testing::ElementsAre(Places{cpu}));  // as many as it may use
  }
  KeepThreadTo(usable);
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
