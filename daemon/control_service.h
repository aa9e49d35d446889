// The service spccl.v1.Control: rights, and words between gRPC and the core. What each method does
// is said in proto/spccl/v1/control.proto.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "daemon/control.h"
#include "daemon/control_service_access.h"
#include "daemon/job_table.h"
#include "daemon/settings_store.h"
#include "grpcpp/grpcpp.h"
#include "proto/spccl/v1/control.grpc.pb.h"

namespace spccl::daemon {

class ControlService final : public v1::Control::Service {
 public:
  // Borrows the core, the settings and the jobs; `resolver` may be called on any thread.
  ControlService(Control* core, SettingsStore* settings, JobTable* jobs, CallerResolver resolver)
      : core_(core), settings_(settings), jobs_(jobs), resolver_(std::move(resolver)) {}

  // Ends all streams soon; no stream starts afterwards.
  void Stop();

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status ListComms(grpc::ServerContext* context, const v1::ListCommsRequest* request,
                         v1::ListCommsResponse* response) override;
  grpc::Status ListBuffers(grpc::ServerContext* context, const v1::ListBuffersRequest* request,
                           v1::ListBuffersResponse* response) override;
  grpc::Status GetSettings(grpc::ServerContext* context, const v1::GetSettingsRequest* request,
                           v1::GetSettingsResponse* response) override;
  grpc::Status SetSettings(grpc::ServerContext* context, const v1::SetSettingsRequest* request,
                           v1::SetSettingsResponse* response) override;
  grpc::Status ResetSettings(grpc::ServerContext* context, const v1::ResetSettingsRequest* request,
                             v1::ResetSettingsResponse* response) override;
  grpc::Status LoadModel(grpc::ServerContext* context, const v1::LoadModelRequest* request,
                         v1::LoadModelResponse* response) override;
  grpc::Status UnloadModel(grpc::ServerContext* context, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::GetModelResponse* response) override;
  grpc::Status StreamTelemetry(grpc::ServerContext* context,
                               const v1::StreamTelemetryRequest* request,
                               grpc::ServerWriter<v1::Telemetry>* writer) override;
  grpc::Status StreamEvents(grpc::ServerContext* context, const v1::StreamEventsRequest* request,
                            grpc::ServerWriter<v1::StreamEventsResponse>* writer) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;
  grpc::Status AbortComm(grpc::ServerContext* context, const v1::AbortCommRequest* request,
                         v1::AbortCommResponse* response) override;
  grpc::Status GetFlight(grpc::ServerContext* context, const v1::GetFlightRequest* request,
                         v1::GetFlightResponse* response) override;
  grpc::Status RegisterJob(grpc::ServerContext* context, const v1::RegisterJobRequest* request,
                           v1::RegisterJobResponse* response) override;
  grpc::Status EndJob(grpc::ServerContext* context, const v1::EndJobRequest* request,
                      v1::EndJobResponse* response) override;
  grpc::Status SetJobShare(grpc::ServerContext* context, const v1::SetJobShareRequest* request,
                           v1::SetJobShareResponse* response) override;
  grpc::Status ResetJobShare(grpc::ServerContext* context, const v1::ResetJobShareRequest* request,
                             v1::ResetJobShareResponse* response) override;

 private:
  // With what `share` sets, or not at all.
  absl::Status Register(const RegisteredJob& job, const JobShareOverrides& share);
  // Tells the core and the log what an administrator has done to the job's share.
  void ShareChanged(const Caller& caller, const Snapshot& all, const std::string& job_id,
                    const std::string& what);
  // Tells the log and the events that the model has changed.
  void NoteModel(const Caller& caller, const std::string& what);
  // Runs `body` with the caller and a snapshot of everything, within the caller's share of calls.
  grpc::Status Run(const grpc::ServerContext& context,
                   const std::function<absl::Status(const Caller&, Snapshot)>& body);
  absl::Status Telemeter(grpc::ServerContext* context, const v1::StreamTelemetryRequest& request,
                         const Caller& caller, grpc::ServerWriter<v1::Telemetry>* writer);
  absl::Status TellEvents(grpc::ServerContext* context, const v1::StreamEventsRequest& request,
                          const Caller& caller, uint64_t boot_id,
                          grpc::ServerWriter<v1::StreamEventsResponse>* writer);
  // What holds in the scope, which `all` holds if it is a communicator.
  policy::Settings Resolved(const Snapshot& all, const Scope& scope) const;
  // Whether the ranks' environment is narrower than a change of the scope, of what is set in
  // `touched`, and decides.
  bool EnvironmentDecides(const CommInfo& comm, const Scope& scope,
                          const policy::Overrides& touched) const;
  // Likewise the settings of a scope within.
  bool NarrowerDecides(const CommInfo& comm, const Scope& scope,
                       const policy::Overrides& touched) const;
  // Applies `change` to the scope that `scope` names, if the caller may, and fills the response.
  template <typename May, typename Response, typename Change>
  grpc::Status ChangeSettings(const grpc::ServerContext& context, const v1::Scope& scope,
                              const May& may, const policy::Overrides& touched, Response* response,
                              const Change& change);
  // Waits until the time, or until the call has been cancelled or the service stops: then false.
  bool WaitUntil(const grpc::ServerContext& context, int64_t monotonic_ns);

  Control* const core_;
  SettingsStore* const settings_;
  JobTable* const jobs_;
  const CallerResolver resolver_;
  CallLimit limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
};

}  // namespace spccl::daemon
