// What the tests of ControlService share: a service on a fake core, and a client of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>

#include "daemon/control_service.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/server_posix.h"
#include "tests/daemon/fake_control.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {

inline constexpr char kBootId[] = "0123456789abcdef";
inline constexpr uid_t kMember = 1000, kOwner = 1001, kStranger = 1002, kOther = 1003;
inline const Caller kCallers[] = {{.uid = 0, .administrator = true},
                                  {.uid = kMember, .administrator = true},
                                  {.uid = kOwner, .administrator = false},
                                  {.uid = kStranger, .administrator = false}};

class ControlServiceTest : public ::testing::Test {
 protected:
  using Code = grpc::StatusCode;

  ControlServiceTest() {
    settings_ = *SettingsStore::Create(folder_, {});
    // The owner and one more user have a job each.
    core_.Update([](Snapshot* snapshot) { *snapshot = SampleSnapshot({kOwner, kOther}); });
    service_ = std::make_unique<ControlService>(
        &core_, settings_.get(), jobs_.get(),
        [this](const std::string&) -> absl::StatusOr<Caller> { return caller_; });
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    stub_ = v1::Control::NewStub(grpc::CreateInsecureChannelFromFd("test", ends[1]));
  }
  ~ControlServiceTest() override {
    service_->Stop();
    server_->Shutdown();
  }

  static void Limit(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }
  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    Limit(&context);
    return (stub_.get()->*method)(&context, request, response);
  }

  v1::Settings SomeSettings() {
    v1::Settings settings;
    settings.set_algorithm(v1::ALGORITHM_RING);
    return settings;
  }
  v1::Scope GlobalScopeMessage() {
    v1::Scope scope;
    scope.mutable_global();
    return scope;
  }
  v1::Scope JobMessage(const std::string& id) {
    v1::Scope scope;
    scope.set_job_id(id);
    return scope;
  }
  v1::Scope CommMessage(uint64_t id) {
    v1::Scope scope;
    scope.set_comm_id(id);
    return scope;
  }
  Code Get(const v1::Scope& scope) {
    v1::GetSettingsRequest request;
    *request.mutable_scope() = scope;
    v1::GetSettingsResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::GetSettings, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }
  Code Set(const v1::Scope& scope, const v1::Settings& settings) {
    v1::SetSettingsRequest request;
    *request.mutable_scope() = scope;
    *request.mutable_settings() = settings;
    v1::SetSettingsResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::SetSettings, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }
  Code Reset(const v1::Scope& scope) {
    v1::ResetSettingsRequest request;
    *request.mutable_scope() = scope;
    v1::ResetSettingsResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::ResetSettings, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }
  Code Drain(bool undo) {
    v1::DrainRequest request;
    request.set_undo(undo);
    v1::DrainResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::Drain, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }
  Code RegisterJob(uint64_t number, uint32_t uid, const JobShareOverrides& share = {}) {
    v1::RegisterJobRequest request;
    request.set_number(number);
    request.set_uid(uid);
    if (share.weight.has_value()) {
      request.mutable_share()->set_weight(static_cast<uint32_t>(*share.weight));
    }
    v1::RegisterJobResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::RegisterJob, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }
  Code EndJob(uint64_t number, uint32_t uid, v1::EndJobResponse* response) {
    v1::EndJobRequest request;
    request.set_number(number);
    request.set_uid(uid);
    return Call(&v1::Control::Stub::EndJob, request, response).error_code();
  }
  Code Abort(uint64_t comm, const std::string& reason = "") {
    v1::AbortCommRequest request;
    request.set_comm_id(comm);
    request.set_reason(reason);
    v1::AbortCommResponse response;
    const grpc::Status status = Call(&v1::Control::Stub::AbortComm, request, &response);
    EXPECT_EQ(response.boot_id(), status.ok() ? kBootId : "");
    return status.error_code();
  }

  const spccl::testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  FakeControl core_;
  std::unique_ptr<SettingsStore> settings_;
  std::unique_ptr<JobTable> jobs_ = *JobTable::Create(folder_ + "/jobs");
  Caller caller_ = kCallers[0];
  std::unique_ptr<ControlService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Control::Stub> stub_;
};

}  // namespace spccl::daemon
