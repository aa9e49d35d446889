// The channel threads: they work off tasks, slice by slice, and jobs share their time by weight.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "collective/runtime/span_ring.h"
#include "daemon/fair_queue.h"
#include "daemon/metrics/histogram.h"

namespace spccl::daemon {

inline constexpr uint32_t kMaxChannelThreads = 64;

// Thread-safe.
class Scheduler {
 public:
  struct Options {
    uint32_t channels = 0;  // 0: one a hardware thread that the caller may use, at most 64
    // Thread i runs on one core only, the i-th of those that the caller may use; from the first
    // again where there are fewer cores.
    bool pin = false;
    size_t spans = 0;  // how many each thread keeps of what it did last; 0: none
    // What jobs are charged by: the calling thread's own time.
    int64_t (*thread_clock)() = ThreadCpuNanos;
  };
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(const Options& options);
  // Ends the threads after the slices that they run; tasks that are still queued are dropped.
  ~Scheduler();

  // Sets the task's waker and queues it until it says that it is done. The share is the job's from
  // now on; the threads' time is added to `time`.
  void Add(const std::string& job_id, uint64_t comm_id, std::shared_ptr<runtime::Task> task,
           ChannelShare share = {}, std::shared_ptr<ChannelTime> time = nullptr);
  // For the slices to come. Does nothing for a job that has nothing queued.
  void SetShare(const std::string& job_id, ChannelShare share);
  // Gives it no further slice; running ones go on. Does nothing if it is not queued.
  void Remove(const runtime::Task* task);

  // What channel `i` did last; nullptr: it is not kept.
  const runtime::SpanRing* spans(uint32_t i) const { return channels_[i]->spans.get(); }

  uint32_t channels() const { return static_cast<uint32_t>(channels_.size()); }
  // How long the oldest slice that runs now has been running; 0 if none runs.
  int64_t OldestSliceNanos(int64_t now_ns) const;
  // How long no channel thread has taken a slice although there is one to take; 0 if there is none.
  int64_t DueNanos(int64_t now_ns) const;
  // How long tasks have been queued before their first slice was taken.
  const metrics::SharedTimes& waits() const { return waits_; }

 private:
  struct Channel {
    std::thread thread;
    std::unique_ptr<runtime::SpanRing> spans;  // the thread's; null: none
    // When its slice began; 0 between slices. Relaxed: a time stamp that orders nothing.
    std::atomic<int64_t> slice_began_ns{0};
  };

  explicit Scheduler(int64_t (*thread_clock)()) : thread_clock_(thread_clock) {}
  void Run(Channel& channel);
  void Wake(const std::weak_ptr<FairQueue::Entry>& weak_entry);
  // There is something to take. The lock is held.
  void NoteDue();

  int64_t (*const thread_clock_)();
  std::mutex mutex_;
  std::condition_variable ready_;
  FairQueue queue_;
  bool stopping_ = false;
  // When a slice was last taken, or became the only one to take; 0: there is none. Written under
  // the lock. Relaxed: a time stamp that orders nothing.
  std::atomic<int64_t> due_since_ns_{0};
  metrics::SharedTimes waits_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

}  // namespace spccl::daemon
