// In which order tasks get slices: jobs share the time of channel threads by their weights (see
// base/fair_clock.h); a job's communicators take turns.
//
// A turn is one slice, so that a slice keeps its caches, and a job that has been idle waits for the
// running slices only. Not thread-safe: the scheduler's lock guards it. Tasks are opaque here.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/fair_clock.h"
#include "collective/runtime/task.h"

namespace spccl::daemon {

// What a job gets of the channel threads.
struct ChannelShare {
  uint32_t weight = 1;
  uint32_t most = 0;  // threads at once; 0: all
};

// What a job has had of them, in nanoseconds. Relaxed: a sum that orders nothing.
using ChannelTime = std::atomic<int64_t>;

class FairQueue {
 private:
  struct Job;

 public:
  struct Entry {
    uint64_t comm_id = 0;
    std::shared_ptr<runtime::Task> task;
    uint64_t wakes = 0;  // calls of the waker
    bool queued = true;
    int64_t added_ns = 0;  // the scheduler's: when it was queued; 0: its first slice was taken

    const std::string& job_id() const { return job->id; }

   private:
    friend class FairQueue;
    bool parked = false;
    std::shared_ptr<ChannelTime> time;
    std::shared_ptr<Job> job;  // outlives the last entry: what still runs is charged to it
  };
  using EntryRef = std::shared_ptr<Entry>;

  // A slice that an entry may run; End() must follow.
  struct Turn {
    EntryRef entry;           // nullptr: none can run
    int64_t expected_ns = 0;  // charged in advance
  };

  FairQueue() = default;
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;
  ~FairQueue();

  // The share is the job's from now on. What the task's slices cost is added to `time`, if there is
  // one.
  EntryRef Add(const std::string& job_id, uint64_t comm_id, std::shared_ptr<runtime::Task> task,
               ChannelShare share = {}, std::shared_ptr<ChannelTime> time = nullptr);
  // Does nothing for a job that has nothing queued or running.
  void SetShare(const std::string& job_id, ChannelShare share);

  // The entry stays queued, behind the job's others. Work in proportion to the jobs that are
  // queued.
  Turn Next();
  // `cost_ns`: the thread's time that it took.
  void End(const Turn& turn, int64_t cost_ns);

  // Nothing to run until Unpark(). False: it was so before.
  bool Park(const EntryRef& entry);
  bool Unpark(const EntryRef& entry);
  // Does nothing if the entry was removed before.
  void Remove(const EntryRef& entry);
  // The entry of a task, nullptr if it is not queued.
  EntryRef Find(const runtime::Task* task) const;
  // Jobs that something is queued or running of, or that have had more than their share.
  size_t jobs() const { return jobs_.size(); }

 private:
  struct CommQueue {
    uint64_t comm_id;
    std::list<EntryRef> entries;
  };
  struct Job {
    std::string id;
    ChannelShare share = {};
    FairClock::Account account = {};
    int64_t expected_ns = 0;  // of a slice: the mean of the last ones
    uint32_t running = 0;     // turns
    uint32_t ready = 0;       // entries that are not parked
    // The front is next; whoever had a turn moves to the back.
    std::list<CommQueue> comms = {};
    uint64_t last_turn = 0;  // its number among all; of two jobs alike the older one is next

    bool MayRun() const { return ready > 0 && (share.most == 0 || running < share.most); }
  };

  // One more entry of the job can run.
  void CountReady(Job* job);
  static EntryRef NextOf(Job& job);
  void ForgetSettled();

  FairClock clock_;
  uint64_t turns_ = 0;
  std::map<std::string, std::shared_ptr<Job>> jobs_;
};

}  // namespace spccl::daemon
