#include "daemon/control_service_access.h"

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/view.h"

namespace spccl::daemon {
namespace {

void Add(const Counters& from, Counters* to) {
  to->ops += from.ops;
  to->failed_ops += from.failed_ops;
  to->dense_bytes += from.dense_bytes;
  to->wire_bytes += from.wire_bytes;
  to->payload_bytes += from.payload_bytes;
  to->busy_ns += from.busy_ns;
  to->encode_ns += from.encode_ns;
  to->send_ns += from.send_ns;
  to->reduce_ns += from.reduce_ns;
  to->receive_wait_ns += from.receive_wait_ns;
  to->room_wait_ns += from.room_wait_ns;
  for (size_t i = 0; i < from.sends_by_format.size(); ++i) {
    to->sends_by_format[i] += from.sends_by_format[i];
  }
  for (size_t phase = 0; phase < from.decisions.size(); ++phase) {
    for (size_t reason = 0; reason < from.decisions[phase].size(); ++reason) {
      to->decisions[phase][reason] += from.decisions[phase][reason];
    }
  }
}

const CommInfo* FindComm(const Snapshot& all, uint64_t id) {
  const auto found = std::find_if(all.comms.begin(), all.comms.end(),
                                  [id](const CommInfo& comm) { return comm.id == id; });
  return found == all.comms.end() ? nullptr : &*found;
}

// By the jobs that there are. Two users' jobs may have the same id; then neither owns it.
enum class Owner { kNobody, kCaller, kAnother };
Owner OwnerOf(const Caller& caller, const Snapshot& all, const std::string& id) {
  Owner owner = Owner::kNobody;
  for (const JobInfo& job : all.jobs) {
    if (job.id != id) continue;
    if (job.uid != caller.uid) return Owner::kAnother;
    owner = Owner::kCaller;
  }
  return owner;
}

// Only this user's processes are ever of jobs of such names.
bool IsNamedAfter(const Caller& caller, const std::string& id) {
  return absl::StartsWith(id, absl::StrCat("u", caller.uid, "."));
}

absl::Status NoneOfYours(std::string_view what, std::string_view id, const Caller& caller) {
  return absl::PermissionDeniedError(
      absl::StrCat("no ", View(what), " ", View(id), " is owned by uid ", caller.uid));
}

}  // namespace

Snapshot VisibleTo(const Caller& caller, Snapshot all) {
  if (caller.administrator) return all;
  const auto hidden = [&caller](const auto& item) { return item.uid != caller.uid; };
  std::erase_if(all.jobs, hidden);
  std::erase_if(all.comms, hidden);
  std::erase_if(all.buffers, hidden);
  CoreInfo& core = all.core;
  core.health_detail.clear();
  core.mapped_bytes = 0;
  core.sessions = 0;
  core.counters = Counters{};
  for (const JobInfo& job : all.jobs) {
    core.sessions += job.sessions;
    Add(job.counters, &core.counters);
  }
  return all;
}

absl::Status MayChange(const Caller& caller, const Snapshot& all, const Scope& scope) {
  if (const auto* comm = std::get_if<CommScope>(&scope)) {
    const CommInfo* found = FindComm(all, comm->comm_id);
    if (found != nullptr && MaySee(caller, found->uid)) return absl::OkStatus();
    return NoSuchComm(caller, comm->comm_id);
  }
  if (caller.administrator) return absl::OkStatus();
  if (const auto* job = std::get_if<JobScope>(&scope)) {
    const Owner owner = OwnerOf(caller, all, job->job_id);
    if (owner == Owner::kCaller) return absl::OkStatus();
    if (owner == Owner::kNobody && IsNamedAfter(caller, job->job_id)) {
      return absl::PermissionDeniedError(
          absl::StrCat("job ", job->job_id,
                       " is not there now: only administrators set what one will run with"));
    }
    return NoneOfYours("job", job->job_id, caller);
  }
  return MustAdminister(caller, "change the global settings");
}

absl::Status MayReset(const Caller& caller, const Snapshot& all, const Scope& scope) {
  const auto* const job = std::get_if<JobScope>(&scope);
  if (job != nullptr && IsNamedAfter(caller, job->job_id) &&
      OwnerOf(caller, all, job->job_id) == Owner::kNobody) {
    return absl::OkStatus();
  }
  return MayChange(caller, all, scope);
}

absl::Status NoSuchComm(const Caller& caller, uint64_t comm_id) {
  if (caller.administrator) {
    return absl::NotFoundError(absl::StrCat("there is no communicator ", comm_id));
  }
  return NoneOfYours("communicator", absl::StrCat(comm_id), caller);
}

absl::Status MayRead(const Caller& caller, const Snapshot& all, const Scope& scope) {
  if (std::holds_alternative<GlobalScope>(scope)) return absl::OkStatus();
  return MayReset(caller, all, scope);
}

absl::Status MustAdminister(const Caller& caller, const char* what) {
  if (caller.administrator) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("uid ", caller.uid, " may not ", what,
                                                  ": only root and the daemon's admin_group may"));
}

CallLimit::Slot::~Slot() {
  const std::lock_guard lock(limit_->mutex_);
  const auto entry = limit_->calls_.find(uid_);
  if (--entry->second == 0) limit_->calls_.erase(entry);
}

std::unique_ptr<CallLimit::Slot> CallLimit::Enter(uid_t uid) {
  const std::lock_guard lock(mutex_);
  int& calls = calls_[uid];
  if (calls >= kCallsPerUser) return nullptr;
  ++calls;
  return std::make_unique<Slot>(this, uid);
}

}  // namespace spccl::daemon
