#include "daemon/control_service.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/control_service_convert.h"
#include "daemon/settings_words.h"
#include "proto/spccl/v1/flight_file.h"

namespace spccl::daemon {
namespace {

constexpr size_t kMaxReasonBytes = 200;

grpc::Status ToGrpc(const absl::Status& status) {
  // Both have the canonical codes.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// Not "deadline exceeded", the core's word where it does not answer: to the caller it would mean
// that we are not reachable. That we are no longer, where the core has stopped, is true.
absl::Status OfReachable(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) ? absl::InternalError(status.message()) : status;
}

std::string Describe(const Scope& scope) {
  if (const auto* job = std::get_if<JobScope>(&scope)) return absl::StrCat("job ", job->job_id);
  if (const auto* comm = std::get_if<CommScope>(&scope))
    return absl::StrCat("comm ", comm->comm_id);
  return "global";
}

// Those see it who see the job or communicator; of the global scope, all administrators.
Event SettingsEvent(const Snapshot& all, const Scope& scope, const Caller& caller,
                    const std::string& what) {
  Event event{};
  event.kind = "settings-changed";
  event.uid = caller.uid;
  event.message = absl::StrCat(Describe(scope), ": uid ", caller.uid, " ", what);
  if (const auto* job = std::get_if<JobScope>(&scope)) {
    event.job_id = job->job_id;
    for (const JobInfo& info : all.jobs) {
      if (info.id == job->job_id) event.uid = info.uid;
    }
  } else if (const auto* comm = std::get_if<CommScope>(&scope)) {
    event.comm_id = comm->comm_id;
    for (const CommInfo& info : all.comms) {
      if (info.id == comm->comm_id) {
        event.job_id = info.job_id;
        event.uid = info.uid;
      }
    }
  }
  return event;
}

bool IsIn(const CommInfo& comm, const Scope& scope) {
  if (const auto* job = std::get_if<JobScope>(&scope)) return comm.job_id == job->job_id;
  if (const auto* one = std::get_if<CommScope>(&scope)) return comm.id == one->comm_id;
  return true;
}

// Those in the scope that the predicate holds for.
// With something set wherever the part has something.
policy::Overrides AllOf(SettingsPart part) {
  policy::Overrides all;
  if (part == SettingsPart::kAll || part == SettingsPart::kThresholds) {
    all.pici = all.coo = {.intra = 0, .inter = 0, .ag = 0};
  }
  if (part == SettingsPart::kThresholds) return all;
  all.codec.emplace();
  all.lossy.emplace();
  if (part == SettingsPart::kCodec) return all;
  all.algorithm.emplace();
  all.slice_bytes.emplace();
  return all;
}

template <typename Predicate>
uint32_t CommsIn(const Snapshot& all, const Scope& scope, const Predicate& holds) {
  return static_cast<uint32_t>(
      std::count_if(all.comms.begin(), all.comms.end(),
                    [&](const CommInfo& comm) { return IsIn(comm, scope) && holds(comm); }));
}

bool Any(const CommInfo&) {
  return true;
}

bool IsLedElsewhere(const CommInfo& comm) {
  return std::any_of(comm.nodes.begin(), comm.nodes.end(), [](const CommNodeInfo& node) {
    return !node.address.empty() &&
           std::find(node.ranks.begin(), node.ranks.end(), 0U) != node.ranks.end();
  });
}

// Jobs that are registered are there also while nothing of them has connected.
void AddRegistered(const std::vector<RegisteredJob>& registered, const SettingsStore& settings,
                   Snapshot* all) {
  for (const RegisteredJob& job : registered) {
    const std::string id = job.id();
    auto found = std::find_if(all->jobs.begin(), all->jobs.end(),
                              [&id](const JobInfo& info) { return info.id == id; });
    if (found == all->jobs.end()) {
      JobInfo info{};
      info.id = id;
      info.uid = job.uid;
      info.share = settings.ShareOf(id);
      found = all->jobs.insert(all->jobs.end(), std::move(info));
    }
    found->registered = true;
  }
}

}  // namespace

void ControlService::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

grpc::Status ControlService::Run(const grpc::ServerContext& context,
                                 const std::function<absl::Status(const Caller&, Snapshot)>& body) {
  const absl::StatusOr<Caller> caller = resolver_(context.peer());
  if (!caller.ok()) return ToGrpc(caller.status());
  const std::unique_ptr<CallLimit::Slot> slot = limit_.Enter(caller->uid);
  if (slot == nullptr) {
    return ToGrpc(absl::ResourceExhaustedError(absl::StrCat(
        "uid ", caller->uid, " has ", CallLimit::kCallsPerUser, " calls in progress already")));
  }
  absl::StatusOr<Snapshot> snapshot = core_->GetSnapshot();
  if (!snapshot.ok()) return ToGrpc(OfReachable(snapshot.status()));
  AddRegistered(jobs_->List(), *settings_, &*snapshot);
  return ToGrpc(OfReachable(body(*caller, *std::move(snapshot))));
}

grpc::Status ControlService::GetStatus(grpc::ServerContext* context,
                                       const v1::GetStatusRequest* request,
                                       v1::GetStatusResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_status() = StatusOf(VisibleTo(caller, std::move(all)), caller.administrator);
    return absl::OkStatus();
  });
}

grpc::Status ControlService::ListJobs(grpc::ServerContext* context,
                                      const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    response->set_boot_id(BootIdText(all.core.boot_id));
    for (const JobInfo& job : VisibleTo(caller, std::move(all)).jobs) {
      *response->add_jobs() = ToProto(job);
    }
    return absl::OkStatus();
  });
}

grpc::Status ControlService::ListComms(grpc::ServerContext* context,
                                       const v1::ListCommsRequest* request,
                                       v1::ListCommsResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    response->set_boot_id(BootIdText(all.core.boot_id));
    for (const CommInfo& comm : VisibleTo(caller, std::move(all)).comms) {
      if (!request->job_id().empty() && comm.job_id != request->job_id()) continue;
      *response->add_comms() = ToProto(comm);
    }
    return absl::OkStatus();
  });
}

grpc::Status ControlService::ListBuffers(grpc::ServerContext* context,
                                         const v1::ListBuffersRequest* request,
                                         v1::ListBuffersResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    response->set_boot_id(BootIdText(all.core.boot_id));
    for (const BufferInfo& buffer : VisibleTo(caller, std::move(all)).buffers) {
      if (!request->job_id().empty() && buffer.job_id != request->job_id()) continue;
      *response->add_buffers() = ToProto(buffer);
    }
    return absl::OkStatus();
  });
}

policy::Settings ControlService::Resolved(const Snapshot& all, const Scope& scope) const {
  if (const auto* job = std::get_if<JobScope>(&scope)) return settings_->Resolve(job->job_id, 0);
  if (const auto* comm = std::get_if<CommScope>(&scope)) {
    for (const CommInfo& info : all.comms) {
      if (info.id == comm->comm_id) return info.settings;
    }
    return settings_->Resolve("", comm->comm_id);
  }
  return settings_->Resolve("", 0);  // no job and no communicator have these names
}

grpc::Status ControlService::GetSettings(grpc::ServerContext* context,
                                         const v1::GetSettingsRequest* request,
                                         v1::GetSettingsResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_ASSIGN_OR_RETURN(const Scope scope, FromProto(request->scope()));
    SPCCL_RETURN_IF_ERROR(MayRead(caller, all, scope));
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_overrides() = ToProto(settings_->Get(scope));
    *response->mutable_resolved() = ToProto(Resolved(all, scope));
    const auto add = [response](const char* by, const policy::Overrides& said) {
      v1::Saying* const saying = response->add_around();
      saying->set_by(by);
      *saying->mutable_settings() = ToProto(said);
    };
    for (const CommInfo& comm : all.comms) {
      if (!std::holds_alternative<CommScope>(scope) || !IsIn(comm, scope)) continue;
      add("environment", comm.wishes);
      add("job", settings_->Get(JobScope{comm.job_id}));
    }
    if (!std::holds_alternative<GlobalScope>(scope)) add("global", settings_->Get(GlobalScope{}));
    return absl::OkStatus();
  });
}

bool ControlService::EnvironmentDecides(const CommInfo& comm, const Scope& scope,
                                        const policy::Overrides& touched) const {
  if (std::holds_alternative<CommScope>(scope)) return false;
  const policy::Overrides own = settings_->Get(CommScope{comm.id});
  return (touched.algorithm && comm.wishes.algorithm && !own.algorithm) ||
         (touched.codec && comm.wishes.codec && !own.codec);
}

bool ControlService::NarrowerDecides(const CommInfo& comm, const Scope& scope,
                                     const policy::Overrides& touched) const {
  if (std::holds_alternative<CommScope>(scope)) return false;
  if (Overlap(settings_->Get(CommScope{comm.id}), touched)) return true;
  return std::holds_alternative<GlobalScope>(scope) &&
         Overlap(settings_->Get(JobScope{comm.job_id}), touched);
}

template <typename May, typename Response, typename Change>
grpc::Status ControlService::ChangeSettings(const grpc::ServerContext& context,
                                            const v1::Scope& scope_message, const May& may,
                                            const policy::Overrides& touched, Response* response,
                                            const Change& change) {
  return Run(context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_ASSIGN_OR_RETURN(const Scope scope, FromProto(scope_message));
    SPCCL_RETURN_IF_ERROR(may(caller, all, scope));
    SPCCL_ASSIGN_OR_RETURN(const std::string what, change(scope));
    Log(LogLevel::kInfo, "control", "settings changed",
        {{"scope", Describe(scope)}, {"change", what}, {"uid", absl::StrCat(caller.uid)}});
    core_->RecordEvent(SettingsEvent(all, scope, caller, what));
    // A communicator's settings are the core's word, which has changed now.
    const absl::StatusOr<Snapshot> now = core_->GetSnapshot();
    if (!now.ok()) {
      return absl::InternalError(
          absl::StrCat("in force, but what holds now is not known: ", now.status().message()));
    }
    if (const auto* comm = std::get_if<CommScope>(&scope);
        comm != nullptr && CommsIn(*now, scope, Any) == 0) {
      settings_->Forget(comm->comm_id);  // it ended meanwhile: the core has forgotten it already
      return absl::NotFoundError(absl::StrCat("communicator ", comm->comm_id, " has ended"));
    }
    response->set_boot_id(BootIdText(now->core.boot_id));
    const Snapshot seen = VisibleTo(caller, *now);
    response->set_communicators(CommsIn(seen, scope, Any));
    response->set_led_elsewhere(CommsIn(seen, scope, IsLedElsewhere));
    response->set_environment_decides(CommsIn(seen, scope, [&](const CommInfo& comm) {
      return EnvironmentDecides(comm, scope, touched);
    }));
    response->set_narrower_decides(CommsIn(
        seen, scope, [&](const CommInfo& comm) { return NarrowerDecides(comm, scope, touched); }));
    *response->mutable_resolved() = ToProto(Resolved(*now, scope));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::SetSettings(grpc::ServerContext* context,
                                         const v1::SetSettingsRequest* request,
                                         v1::SetSettingsResponse* response) {
  const absl::StatusOr<policy::Overrides> asked = FromProto(request->settings());
  return ChangeSettings(*context, request->scope(), MayChange, asked.value_or(policy::Overrides{}),
                        response, [&](const Scope& scope) -> absl::StatusOr<std::string> {
                          SPCCL_RETURN_IF_ERROR(asked.status());
                          SPCCL_RETURN_IF_ERROR(settings_->Set(scope, *asked));
                          return "set " + Describe(*asked);
                        });
}

grpc::Status ControlService::ResetSettings(grpc::ServerContext* context,
                                           const v1::ResetSettingsRequest* request,
                                           v1::ResetSettingsResponse* response) {
  const absl::StatusOr<SettingsPart> part = FromProto(request->part());
  return ChangeSettings(
      *context, request->scope(), MayReset, part.ok() ? AllOf(*part) : policy::Overrides{},
      response, [&](const Scope& scope) -> absl::StatusOr<std::string> {
        SPCCL_RETURN_IF_ERROR(part.status());
        SPCCL_RETURN_IF_ERROR(settings_->Reset(scope, *part));
        return std::string(*part == SettingsPart::kThresholds ? "reset the thresholds"
                           : *part == SettingsPart::kAlgorithm
                               ? "reset the algorithm and the codec, and lossy sends"
                           : *part == SettingsPart::kCodec ? "reset the codec, and lossy sends"
                                                           : "reset all");
      });
}

grpc::Status ControlService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                   v1::DrainResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    SPCCL_RETURN_IF_ERROR(MustAdminister(caller, "drain the daemon"));
    SPCCL_RETURN_IF_ERROR(core_->SetDraining(!request->undo()));
    Log(LogLevel::kInfo, "control", request->undo() ? "draining undone" : "draining",
        {{"uid", absl::StrCat(caller.uid)}});
    response->set_boot_id(BootIdText(all.core.boot_id));
    response->set_draining(!request->undo());
    return absl::OkStatus();
  });
}

grpc::Status ControlService::AbortComm(grpc::ServerContext* context,
                                       const v1::AbortCommRequest* request,
                                       v1::AbortCommResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    if (request->reason().size() > kMaxReasonBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a reason is at most ", kMaxReasonBytes, " bytes"));
    }
    SPCCL_RETURN_IF_ERROR(MayChange(caller, all, CommScope{request->comm_id()}));
    // It reaches the ranks' terminals and logs.
    const std::string reason =
        absl::StrCat("aborted by uid ", caller.uid, request->reason().empty() ? "" : ": ",
                     Printable(request->reason()));
    SPCCL_RETURN_IF_ERROR(core_->AbortComm(request->comm_id(), reason));
    Log(LogLevel::kInfo, "control", "communicator aborted",
        {{"comm", absl::StrCat(request->comm_id())}, {"reason", reason}});
    response->set_boot_id(BootIdText(all.core.boot_id));
    return absl::OkStatus();
  });
}

grpc::Status ControlService::GetFlight(grpc::ServerContext* context,
                                       const v1::GetFlightRequest* request,
                                       v1::GetFlightResponse* response) {
  return Run(*context, [&](const Caller& caller, Snapshot all) -> absl::Status {
    const uint64_t id = request->comm_id();
    // Before it is gathered: others' daemons are not asked for what the caller may not see.
    const absl::Status may = MayChange(caller, all, CommScope{id});
    const bool is_there = std::any_of(all.comms.begin(), all.comms.end(),
                                      [id](const CommInfo& comm) { return comm.id == id; });
    if (is_there && !may.ok()) return may;
    absl::StatusOr<v1::FlightRecord> record = core_->GetFlight(id, request->spans());
    if (absl::IsNotFound(record.status())) return NoSuchComm(caller, id);
    if (absl::IsUnavailable(record.status())) return record.status();  // the core has stopped
    if (!record.ok()) return absl::InternalError(record.status().message());
    // One that is gone, or has changed its owner meanwhile.
    if (!MaySee(caller, record->uid())) return NoSuchComm(caller, id);
    if (const absl::Status fits = flight::CheckSize(*record); !fits.ok()) {
      return absl::InternalError(fits.message());
    }
    response->set_boot_id(BootIdText(all.core.boot_id));
    *response->mutable_record() = *std::move(record);
    return absl::OkStatus();
  });
}

grpc::Status ControlService::StreamTelemetry(grpc::ServerContext* context,
                                             const v1::StreamTelemetryRequest* request,
                                             grpc::ServerWriter<v1::Telemetry>* writer) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    all = {};  // not kept for as long as the stream lives; likewise below
    return Telemeter(context, *request, caller, writer);
  });
}

grpc::Status ControlService::StreamEvents(grpc::ServerContext* context,
                                          const v1::StreamEventsRequest* request,
                                          grpc::ServerWriter<v1::StreamEventsResponse>* writer) {
  return Run(*context, [&](const Caller& caller, Snapshot all) {
    const uint64_t boot_id = all.core.boot_id;
    all = {};
    return TellEvents(context, *request, caller, boot_id, writer);
  });
}

}  // namespace spccl::daemon
