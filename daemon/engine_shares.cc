// What jobs get of what they share, and their quotas.
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/view.h"
#include "daemon/engine.h"

namespace spccl::daemon {
namespace {

ChannelShare ChannelShareOf(const JobShare& share) {
  return {.weight = static_cast<uint32_t>(share.weight),
          .most = static_cast<uint32_t>(share.max_channels)};
}

// Relaxed: as LinkShare says.
void Take(const JobShare& share, Job* job) {
  job->share = share;
  job->link_share->weight.store(static_cast<uint32_t>(share.weight), std::memory_order_relaxed);
}

}  // namespace

Job& Engine::JobOf(const std::string& job_id, uid_t uid) {
  const auto [found, is_new] = registry_.jobs.try_emplace(job_id);
  Job& job = found->second;
  if (is_new) Take(hooks_.share(job_id), &job);
  job.uid = uid;
  return job;
}

void Engine::ForgetIfIdle(const std::string& job_id) {
  if (!hooks_.is_registered(job_id)) registry_.ForgetIfEmpty(job_id);
}

void Engine::RefreshShares() {
  for (auto& [id, job] : registry_.jobs) {
    const JobShare share = hooks_.share(id);
    if (share == job.share) continue;
    Take(share, &job);
    scheduler_->SetShare(id, ChannelShareOf(share));
  }
}

void Engine::Schedule(const CommEntry& entry, std::shared_ptr<runtime::Task> task) {
  const std::string& job_id = entry.comm.job_id();
  const Job& job = registry_.jobs[job_id];
  scheduler_->Add(job_id, entry.comm.id(), std::move(task), ChannelShareOf(job.share),
                  job.channel_time);
}

absl::Status Engine::CheckQuota(metrics::Quota quota, const std::string& job_id, uint64_t limit,
                                uint64_t held, uint64_t more) {
  if (limit == 0 || (held <= limit && more <= limit - held)) return absl::OkStatus();
  ++registry_.telemetry.quota_refusals[static_cast<size_t>(quota)];
  return absl::ResourceExhaustedError(absl::StrCat(
      "job ", job_id, " would pass its quota of ", limit, " (max_", View(metrics::NameOf(quota)),
      "): it has ", held, " and asks for ", more, " more"));
}

absl::Status Engine::CheckBufferQuota(const std::string& job_id, uint64_t more_bytes) {
  const Job& job = registry_.jobs[job_id];
  return CheckQuota(metrics::Quota::kBufferBytes, job_id, job.share.max_buffer_bytes,
                    job.buffer_bytes, more_bytes);
}

absl::Status Engine::CheckCommQuota(const Asker& asker) {
  const Job& job = JobOf(asker.job_id, asker.uid);
  absl::Status status = CheckQuota(metrics::Quota::kCommunicators, asker.job_id,
                                   job.share.max_communicators, job.communicators, 1);
  if (!status.ok()) ForgetIfIdle(asker.job_id);
  return status;
}

uint64_t Engine::OperationsOf(const std::string& job_id) const {
  uint64_t operations = 0;
  for (const auto& [id, entry] : registry_.comms) {
    if (entry->comm.job_id() == job_id) operations += entry->outstanding_ops();
  }
  return operations;
}

absl::Status Engine::CheckOperationQuota(const CommEntry& entry, uint64_t sequence) {
  const std::string& job_id = entry.comm.job_id();
  const uint64_t limit = registry_.jobs[job_id].share.max_operations;
  // Of an operation that some rank has called already the others' parts are no more.
  if (limit == 0 || entry.comm.IsPending(sequence)) return absl::OkStatus();
  return CheckQuota(metrics::Quota::kOperations, job_id, limit, OperationsOf(job_id), 1);
}

}  // namespace spccl::daemon
