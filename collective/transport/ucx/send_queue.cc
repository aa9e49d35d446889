#include "collective/transport/ucx/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace spccl::transport::ucx {

SendQueue::Job& SendQueue::Find(const std::shared_ptr<const LinkShare>& share) {
  const auto found = jobs_.find(share.get());
  if (found != jobs_.end()) return found->second;
  std::erase_if(jobs_, [this](const auto& entry) {
    const Job& job = entry.second;
    return job.waiting.empty() && !job.wanted && clock_.IsSettled(job.account);
  });
  return jobs_.emplace(share.get(), Job{.share = share, .account = {}, .waiting = {}})
      .first->second;
}

void SendQueue::Begin(Job* job, uint64_t bytes) {
  clock_.Begin(&job->account, static_cast<double>(bytes),
               std::max(1U, job->share->weight.load(std::memory_order_relaxed)));
}

void SendQueue::Charge(const std::shared_ptr<const LinkShare>& share, uint64_t bytes) {
  Job& job = Find(share);
  clock_.Wake(&job.account);
  Begin(&job, bytes);
}

void SendQueue::Push(Outgoing one) {
  Job& job = Find(one.share);
  if (job.waiting.empty()) clock_.Wake(&job.account);
  job.waiting_bytes += one.message.frame_bytes;
  job.waiting.push_back(std::move(one));
  ++waiting_frames_;
}

Outgoing SendQueue::Pop() {
  SPCCL_CHECK(!empty());
  Job* next = nullptr;
  for (auto& [share, job] : jobs_) {
    if (job.waiting.empty()) continue;
    if (next == nullptr || job.account.next < next->account.next) next = &job;
  }
  Outgoing one = std::move(next->waiting.front());
  next->waiting.pop_front();
  next->waiting_bytes -= one.message.frame_bytes;
  --waiting_frames_;
  Begin(next, one.message.frame_bytes);
  return one;
}

bool SendQueue::HasRoom(const std::shared_ptr<const LinkShare>& share) {
  const auto found = jobs_.find(share.get());
  if (found == jobs_.end() || found->second.waiting_bytes < kEnoughBytes) return true;
  found->second.wanted = true;
  return false;
}

bool SendQueue::TakeWanted() {
  bool any = false;
  for (auto& [share, job] : jobs_) {
    if (!job.wanted || job.waiting_bytes > kEnoughBytes / 2) continue;
    job.wanted = false;
    any = true;
  }
  return any;
}

}  // namespace spccl::transport::ucx
