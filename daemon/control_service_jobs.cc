// What the batch system's prolog and epilog ask.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/control_service.h"
#include "daemon/control_service_convert.h"

namespace spccl::daemon {
namespace {

Event JobEvent(const char* kind, const RegisteredJob& job, std::string message) {
  Event event{};
  event.kind = kind;
  event.job_id = job.id();
  event.uid = job.uid;
  event.message = std::move(message);
  return event;
}

// The table refuses it at a registration; here nothing would be found, which is fine.
absl::Status CheckNumber(uint64_t number) {
  if (number != 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a job's number is not 0");
}

// They have no effect, unless the daemon starts anew before anything else is written.
void LogLeftOnDisk(const std::string& job_id, const absl::Status& status) {
  Log(LogLevel::kWarning, "control", "a job's settings are left on disk until the next change",
      {{"job", job_id}, {"error", std::string(status.message())}});
}

}  // namespace

absl::Status ControlService::Register(const RegisteredJob& job, const JobShareOverrides& share) {
  if (share == JobShareOverrides{}) return jobs_->Register(job);
  // The share first: nobody has it before the job is there, and it can be taken back in any case.
  const JobShareOverrides before = settings_->GetShare(job.id());
  SPCCL_RETURN_IF_ERROR(settings_->SetShare(job.id(), share));
  absl::Status status = jobs_->Register(job);
  if (status.ok()) return status;
  if (const absl::Status restored = settings_->RestoreShare(job.id(), before); !restored.ok()) {
    LogLeftOnDisk(job.id(), restored);
  }
  return status;
}

grpc::Status ControlService::RegisterJob(grpc::ServerContext* context,
                                         const v1::RegisterJobRequest* request,
                                         v1::RegisterJobResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "register a job"));
    const RegisteredJob job{
        .number = request->number(), .uid = request->uid(), .cgroup = request->cgroup()};
    const JobShareOverrides share = FromProto(request->share());
    if (const std::string wrong = WrongIn(share); !wrong.empty()) {
      return absl::InvalidArgumentError(wrong);
    }
    SPCCL_RETURN_IF_ERROR(Register(job, share));
    if (share != JobShareOverrides{}) {
      ShareChanged(caller, all, job.id(), "set " + Describe(share));
    }
    core_->RecordEvent(JobEvent("job-registered", job, absl::StrCat("by uid ", caller.uid)));
    response->set_boot_id(BootIdText(all.core.boot_id));
    response->set_job_id(job.id());
    return absl::OkStatus();
  });
}

grpc::Status ControlService::EndJob(grpc::ServerContext* context, const v1::EndJobRequest* request,
                                    v1::EndJobResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "end a job"));
    SPCCL_RETURN_IF_ERROR(CheckNumber(request->number()));
    const RegisteredJob job{.number = request->number(), .uid = request->uid(), .cgroup = {}};
    // First, so that a process of it that connects once more is no longer taken for the job's.
    SPCCL_ASSIGN_OR_RETURN(const bool was_registered, jobs_->End(job.number, job.uid));
    SPCCL_ASSIGN_OR_RETURN(const EndedJob ended, core_->EndJob(job.id()));
    // The job is over, whatever the disk says.
    if (const absl::Status forgotten = settings_->ForgetJob(job.id()); !forgotten.ok()) {
      LogLeftOnDisk(job.id(), forgotten);
    }
    if (was_registered || ended.sessions > 0) {
      core_->RecordEvent(
          JobEvent("job-ended", job,
                   absl::StrCat(Counted(ended.sessions, "session"), " and ",
                                Counted(ended.communicators, "communicator"), " were left")));
    }
    SPCCL_ASSIGN_OR_RETURN(const Snapshot now, core_->GetSnapshot());
    response->set_boot_id(BootIdText(now.core.boot_id));
    response->set_job_id(job.id());
    response->set_was_registered(was_registered);
    response->set_sessions(ended.sessions);
    response->set_communicators(ended.communicators);
    response->set_buffer_bytes(ended.buffer_bytes);
    response->set_registered_left(static_cast<uint32_t>(jobs_->List().size()));
    response->set_sessions_left(now.core.sessions);
    return absl::OkStatus();
  });
}

void ControlService::ShareChanged(const Caller& caller, const Snapshot& all,
                                  const std::string& job_id, const std::string& what) {
  core_->RefreshShares();
  Log(LogLevel::kInfo, "control", "share changed",
      {{"job", job_id}, {"change", what}, {"uid", absl::StrCat(caller.uid)}});
  Event event{};
  event.kind = "settings-changed";
  event.job_id = job_id;
  event.uid = caller.uid;
  for (const JobInfo& job : all.jobs) {
    if (job.id == job_id) event.uid = job.uid;  // who sees it
  }
  event.message = absl::StrCat("job ", job_id, ": uid ", caller.uid, " ", what);
  core_->RecordEvent(std::move(event));
}

grpc::Status ControlService::SetJobShare(grpc::ServerContext* context,
                                         const v1::SetJobShareRequest* request,
                                         v1::SetJobShareResponse* response) {
  return Run(*context, [&](const Caller& caller, const Snapshot& all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "change a job's share"));
    const JobShareOverrides share = FromProto(request->share());
    SPCCL_RETURN_IF_ERROR(settings_->SetShare(request->job_id(), share));
    ShareChanged(caller, all, request->job_id(), "set " + Describe(share));
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_resolved() = ToProto(settings_->ShareOf(request->job_id()));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::ResetJobShare(grpc::ServerContext* context,
                                           const v1::ResetJobShareRequest* request,
                                           v1::ResetJobShareResponse* response) {
  return Run(*context, [&](const Caller& caller, const Snapshot& all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "change a job's share"));
    SPCCL_RETURN_IF_ERROR(settings_->ResetShare(request->job_id()));
    ShareChanged(caller, all, request->job_id(), "reset the share and the quotas");
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_resolved() = ToProto(settings_->ShareOf(request->job_id()));
    return absl::OkStatus();
  });
}

}  // namespace spccl::daemon
