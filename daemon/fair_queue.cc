#include "daemon/fair_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace spccl::daemon {
namespace {

// Of a job of which nothing has run yet: a slice's usual time.
constexpr int64_t kFirstGuessNs = 50'000;
// How much of the mean the last slice makes up.
constexpr int64_t kMeanOf = 8;

}  // namespace

FairQueue::~FairQueue() {
  for (const auto& [id, job] : jobs_) job->comms.clear();  // entries and jobs hold each other
}

FairQueue::EntryRef FairQueue::Add(const std::string& job_id, uint64_t comm_id,
                                   std::shared_ptr<runtime::Task> task, ChannelShare share,
                                   std::shared_ptr<ChannelTime> time) {
  ForgetSettled();
  std::shared_ptr<Job>& job = jobs_[job_id];
  if (job == nullptr) job = std::make_shared<Job>(Job{.id = job_id, .expected_ns = kFirstGuessNs});
  job->share = share;
  auto comm = std::find_if(job->comms.begin(), job->comms.end(),
                           [&](const CommQueue& queue) { return queue.comm_id == comm_id; });
  if (comm == job->comms.end()) comm = job->comms.insert(job->comms.end(), CommQueue{comm_id, {}});
  auto entry = std::make_shared<Entry>();
  entry->comm_id = comm_id;
  entry->task = std::move(task);
  entry->time = std::move(time);
  entry->job = job;
  comm->entries.push_back(entry);
  CountReady(job.get());
  return entry;
}

void FairQueue::SetShare(const std::string& job_id, ChannelShare share) {
  const auto job = jobs_.find(job_id);
  if (job != jobs_.end()) job->second->share = share;
}

void FairQueue::CountReady(Job* job) {
  if (job->ready++ == 0) clock_.Wake(&job->account);
}

FairQueue::EntryRef FairQueue::NextOf(Job& job) {
  for (auto comm = job.comms.begin(); comm != job.comms.end(); ++comm) {
    for (const EntryRef& entry : comm->entries) {
      if (entry->parked) continue;
      const EntryRef found = entry;
      job.comms.splice(job.comms.end(), job.comms, comm);
      return found;
    }
  }
  return nullptr;
}

FairQueue::Turn FairQueue::Next() {
  Job* next = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (!job->MayRun()) continue;
    const auto order = [](const Job& one) { return std::pair(one.account.next, one.last_turn); };
    if (next == nullptr || order(*job) < order(*next)) next = job.get();
  }
  if (next == nullptr) return {};
  clock_.Begin(&next->account, static_cast<double>(next->expected_ns), next->share.weight);
  ++next->running;
  next->last_turn = ++turns_;
  return {.entry = NextOf(*next), .expected_ns = next->expected_ns};
}

void FairQueue::End(const Turn& turn, int64_t cost_ns) {
  Job& job = *turn.entry->job;
  SPCCL_CHECK(job.running > 0);
  --job.running;
  if (turn.entry->time) turn.entry->time->fetch_add(cost_ns, std::memory_order_relaxed);
  FairClock::Charge(&job.account, static_cast<double>(cost_ns - turn.expected_ns),
                    job.share.weight);
  job.expected_ns += (cost_ns - job.expected_ns) / kMeanOf;
}

bool FairQueue::Park(const EntryRef& entry) {
  if (entry->parked || !entry->queued) return false;
  entry->parked = true;
  --entry->job->ready;
  return true;
}

bool FairQueue::Unpark(const EntryRef& entry) {
  if (!entry->parked || !entry->queued) return false;
  entry->parked = false;
  CountReady(entry->job.get());
  return true;
}

void FairQueue::Remove(const EntryRef& entry) {
  if (!entry->queued) return;
  entry->queued = false;
  Job& job = *entry->job;
  if (!entry->parked) --job.ready;
  const auto comm = std::find_if(job.comms.begin(), job.comms.end(), [&](const CommQueue& queue) {
    return queue.comm_id == entry->comm_id;
  });
  comm->entries.remove(entry);
  if (comm->entries.empty()) job.comms.erase(comm);
}

// A job that has had more than its share stays, or it could come again as new after each operation.
void FairQueue::ForgetSettled() {
  std::erase_if(jobs_, [this](const auto& entry) {
    const Job& job = *entry.second;
    return job.comms.empty() && job.running == 0 && clock_.IsSettled(job.account);
  });
}

FairQueue::EntryRef FairQueue::Find(const runtime::Task* task) const {
  for (const auto& [id, job] : jobs_) {
    for (const CommQueue& comm : job->comms) {
      for (const EntryRef& entry : comm.entries) {
        if (entry->task.get() == task) return entry;
      }
    }
  }
  return nullptr;
}

}  // namespace spccl::daemon
