#include "daemon/fair_queue.h"

#include <algorithm>
#include <utility>

namespace spccl::daemon {
namespace {

template <typename List>
void MoveToBack(List& list, typename List::iterator position) {
  list.splice(list.end(), list, position);
}

}  // namespace

FairQueue::EntryRef FairQueue::Add(std::string job_id, uint64_t comm_id,
                                   std::shared_ptr<runtime::Task> task) {
  auto job = std::find_if(jobs_.begin(), jobs_.end(),
                          [&](const JobQueue& queue) { return queue.job_id == job_id; });
  if (job == jobs_.end()) job = jobs_.insert(jobs_.end(), JobQueue{job_id, {}});
  auto comm = std::find_if(job->comms.begin(), job->comms.end(),
                           [&](const CommQueue& queue) { return queue.comm_id == comm_id; });
  if (comm == job->comms.end()) comm = job->comms.insert(job->comms.end(), CommQueue{comm_id, {}});
  auto entry = std::make_shared<Entry>();
  entry->job_id = std::move(job_id);
  entry->comm_id = comm_id;
  entry->task = std::move(task);
  comm->entries.push_back(entry);
  return entry;
}

FairQueue::EntryRef FairQueue::NextOf(JobQueue& job) {
  for (auto comm = job.comms.begin(); comm != job.comms.end(); ++comm) {
    for (const EntryRef& entry : comm->entries) {
      if (entry->parked) continue;
      const EntryRef found = entry;
      MoveToBack(job.comms, comm);
      return found;
    }
  }
  return nullptr;
}

FairQueue::EntryRef FairQueue::Next() {
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (EntryRef found = NextOf(*job)) {
      MoveToBack(jobs_, job);
      return found;
    }
  }
  return nullptr;
}

void FairQueue::Remove(const EntryRef& entry) {
  if (!entry->queued) return;
  entry->queued = false;
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const JobQueue& queue) {
    return queue.job_id == entry->job_id;
  });
  const auto comm = std::find_if(job->comms.begin(), job->comms.end(), [&](const CommQueue& queue) {
    return queue.comm_id == entry->comm_id;
  });
  comm->entries.remove(entry);
  if (comm->entries.empty()) job->comms.erase(comm);
  if (job->comms.empty()) jobs_.erase(job);
}

FairQueue::EntryRef FairQueue::Find(const runtime::Task* task) const {
  for (const JobQueue& job : jobs_) {
    for (const CommQueue& comm : job.comms) {
      for (const EntryRef& entry : comm.entries) {
        if (entry->task.get() == task) return entry;
      }
    }
  }
  return nullptr;
}

}  // namespace spccl::daemon
