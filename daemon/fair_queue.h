// In which order tasks get slices: round robin over jobs, then over a job's communicators.
//
// Not thread-safe: the scheduler's lock guards it. Tasks are opaque here.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "collective/runtime/task.h"

namespace spccl::daemon {

class FairQueue {
 public:
  struct Entry {
    std::string job_id;
    uint64_t comm_id = 0;
    std::shared_ptr<runtime::Task> task;
    bool parked = false;  // nothing to run until the task's waker is called
    uint64_t wakes = 0;   // calls of the waker
    bool queued = true;
    int64_t added_ns = 0;  // the scheduler's: when it was queued; 0: its first slice was taken
  };
  using EntryRef = std::shared_ptr<Entry>;

  EntryRef Add(std::string job_id, uint64_t comm_id, std::shared_ptr<runtime::Task> task);
  // The entry whose turn it is; it stays queued, behind the others. nullptr: none can run.
  EntryRef Next();
  // Does nothing if the entry was removed before.
  void Remove(const EntryRef& entry);
  // The entry of a task, nullptr if it is not queued.
  EntryRef Find(const runtime::Task* task) const;
  bool empty() const { return jobs_.empty(); }

 private:
  struct CommQueue {
    uint64_t comm_id;
    std::list<EntryRef> entries;
  };
  struct JobQueue {
    std::string job_id;
    std::list<CommQueue> comms;
  };
  static EntryRef NextOf(JobQueue& job);

  // The front is next; whoever had a turn moves to the back.
  std::list<JobQueue> jobs_;
};

}  // namespace spccl::daemon
