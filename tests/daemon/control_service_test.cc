#include "daemon/control_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/server_posix.h"
#include "tests/daemon/fake_control.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = grpc::StatusCode;

constexpr char kBootId[] = "0123456789abcdef";
constexpr uid_t kMember = 1000, kOwner = 1001, kStranger = 1002, kOther = 1003;
const Caller kCallers[] = {{.uid = 0, .administrator = true},
                           {.uid = kMember, .administrator = true},
                           {.uid = kOwner, .administrator = false},
                           {.uid = kStranger, .administrator = false}};

class ControlServiceTest : public ::testing::Test {
 protected:
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
  Code RegisterJob(uint64_t number, uint32_t uid) {
    v1::RegisterJobRequest request;
    request.set_number(number);
    request.set_uid(uid);
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

// What each method answers to {root, group member, owner, stranger}, about the owner's things.
TEST_F(ControlServiceTest, EveryChangeTimesEveryCaller) {
  constexpr Code kYes = Code::OK, kNo = Code::PERMISSION_DENIED, kNone = Code::NOT_FOUND;
  const v1::Scope global = GlobalScopeMessage();
  const v1::Scope job = JobMessage(absl::StrCat("job-", kOwner)), no_job = JobMessage("none");
  const v1::Scope comm = CommMessage(kOwner), no_comm = CommMessage(77);
  struct Row {
    const char* name;
    std::function<Code()> call;
    Code expected[4];
  };
  const Row rows[] = {
      {"get global", [&] { return Get(global); }, {kYes, kYes, kYes, kYes}},
      {"get job", [&] { return Get(job); }, {kYes, kYes, kYes, kNo}},
      {"get unknown job", [&] { return Get(no_job); }, {kYes, kYes, kNo, kNo}},
      {"get comm", [&] { return Get(comm); }, {kYes, kYes, kYes, kNo}},
      {"get unknown comm", [&] { return Get(no_comm); }, {kNone, kNone, kNo, kNo}},
      {"set global", [&] { return Set(global, SomeSettings()); }, {kYes, kYes, kNo, kNo}},
      {"set job", [&] { return Set(job, SomeSettings()); }, {kYes, kYes, kYes, kNo}},
      {"set unknown job", [&] { return Set(no_job, SomeSettings()); }, {kYes, kYes, kNo, kNo}},
      {"set comm", [&] { return Set(comm, SomeSettings()); }, {kYes, kYes, kYes, kNo}},
      {"set unknown comm", [&] { return Set(no_comm, SomeSettings()); }, {kNone, kNone, kNo, kNo}},
      {"reset global", [&] { return Reset(global); }, {kYes, kYes, kNo, kNo}},
      {"reset job", [&] { return Reset(job); }, {kYes, kYes, kYes, kNo}},
      {"reset comm", [&] { return Reset(comm); }, {kYes, kYes, kYes, kNo}},
      {"reset unknown comm", [&] { return Reset(no_comm); }, {kNone, kNone, kNo, kNo}},
      {"drain", [&] { return Drain(false); }, {kYes, kYes, kNo, kNo}},
      {"register a job", [&] { return RegisterJob(70, 1000); }, {kYes, kYes, kNo, kNo}},
      {"end a job",
       [&] {
         v1::EndJobResponse response;
         return EndJob(70, 1000, &response);
       },
       {kYes, kYes, kNo, kNo}},
      {"undo drain", [&] { return Drain(true); }, {kYes, kYes, kNo, kNo}},
      {"abort", [&] { return Abort(kOwner); }, {kYes, kYes, kYes, kNo}},
      {"abort unknown", [&] { return Abort(77); }, {kNone, kNone, kNo, kNo}},
  };
  for (const Row& row : rows) {
    for (int i = 0; i < 4; ++i) {
      caller_ = kCallers[i];
      EXPECT_EQ(row.call(), row.expected[i]) << row.name << " by caller " << i;
    }
  }
  EXPECT_EQ(core_.aborts().size(), 3u);
}

// How many of the two users' things each caller sees.
TEST_F(ControlServiceTest, EveryReadTimesEveryCaller) {
  const size_t expected[4] = {2, 2, 1, 0};
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    caller_ = kCallers[i];
    v1::ListJobsResponse jobs;
    ASSERT_TRUE(Call(&v1::Control::Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
    v1::ListCommsResponse comms;
    ASSERT_TRUE(Call(&v1::Control::Stub::ListComms, v1::ListCommsRequest(), &comms).ok());
    v1::ListBuffersResponse buffers;
    ASSERT_TRUE(Call(&v1::Control::Stub::ListBuffers, v1::ListBuffersRequest(), &buffers).ok());
    v1::GetStatusResponse answer;
    ASSERT_TRUE(Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &answer).ok());
    for (const std::string& id :
         {jobs.boot_id(), comms.boot_id(), buffers.boot_id(), answer.boot_id()}) {
      EXPECT_EQ(id, kBootId);
    }
    const v1::Status& status = answer.status();
    const size_t seen[] = {static_cast<size_t>(jobs.jobs_size()),
                           static_cast<size_t>(comms.comms_size()),
                           static_cast<size_t>(buffers.buffers_size()),
                           status.sessions(),
                           status.jobs(),
                           status.communicators(),
                           status.buffers(),
                           status.buffer_bytes() / 4096};
    EXPECT_THAT(seen, ::testing::Each(expected[i]));
    const uint64_t ops[4] = {kOwner + kOther, kOwner + kOther, kOwner, 0};
    EXPECT_EQ(status.counters().ops(), ops[i]);
    EXPECT_EQ(status.administrator(), i < 2);
    EXPECT_EQ(status.mapped_bytes() != 0, i < 2);
    EXPECT_EQ(status.health_detail().empty(), i >= 2);
    EXPECT_TRUE(status.healthy());
    for (const v1::Job& job : jobs.jobs()) EXPECT_TRUE(i < 2 || job.uid() == kOwner);
    for (const v1::Comm& comm : comms.comms()) EXPECT_TRUE(i < 2 || comm.uid() == kOwner);
    for (const v1::Buffer& buffer : buffers.buffers()) EXPECT_TRUE(i < 2 || buffer.uid() == kOwner);
  }
}

TEST_F(ControlServiceTest, RefusalsDoNotTellWhatExists) {
  caller_ = {.uid = kStranger, .administrator = false};
  std::string message[2];
  for (int i = 0; i < 2; ++i) {
    v1::AbortCommRequest request;
    request.set_comm_id(i == 0 ? kOwner : 1004);
    v1::AbortCommResponse response;
    message[i] = Call(&v1::Control::Stub::AbortComm, request, &response).error_message();
  }
  EXPECT_EQ(message[0], "no communicator 1001 is owned by uid 1002");
  EXPECT_EQ(message[1], "no communicator 1004 is owned by uid 1002");
}

TEST_F(ControlServiceTest, FlightRecordsAreTheirOwnersAlsoWhenTheCommunicatorIsGone) {
  constexpr uint64_t kGone = 500;  // failed, and nothing but its record is left
  for (const uint64_t comm : {uint64_t{kOwner}, kGone}) {
    v1::FlightRecord record;
    record.set_comm_id(comm);
    record.set_uid(kOwner);
    record.add_spans();
    core_.SetFlight(record);
  }
  for (const uint64_t comm : {uint64_t{kOwner}, kGone, uint64_t{77}}) {
    for (const Caller& caller : kCallers) {
      SCOPED_TRACE(absl::StrCat("comm ", comm, " uid ", caller.uid));
      caller_ = caller;
      v1::GetFlightRequest request;
      request.set_comm_id(comm);
      v1::GetFlightResponse response;
      const grpc::Status status = Call(&v1::Control::Stub::GetFlight, request, &response);
      const bool may = comm != 77 && (caller.administrator || caller.uid == kOwner);
      const Code refusal = caller.administrator ? Code::NOT_FOUND : Code::PERMISSION_DENIED;
      EXPECT_EQ(status.error_code(), may ? Code::OK : refusal) << status.error_message();
      if (!may && !caller.administrator) {
        EXPECT_EQ(status.error_message(),
                  absl::StrCat("no communicator ", comm, " is owned by uid ", caller.uid));
      }
      EXPECT_EQ(response.record().comm_id(), may ? comm : 0);
      EXPECT_EQ(response.boot_id(), may ? kBootId : "");
      EXPECT_EQ(response.record().spans_size(), 0);
      if (!may) continue;
      request.set_spans(true);
      ASSERT_TRUE(Call(&v1::Control::Stub::GetFlight, request, &response).ok());
      EXPECT_EQ(response.record().spans_size(), 1);
    }
  }
}

TEST_F(ControlServiceTest, AJobIdOfTwoUsersIsOwnedByNeither) {
  core_.Update([](Snapshot* snapshot) {
    for (JobInfo& job : snapshot->jobs) job.id = "shared";
  });
  caller_ = {.uid = kOwner, .administrator = false};
  EXPECT_EQ(Set(JobMessage("shared"), SomeSettings()), Code::PERMISSION_DENIED);
  EXPECT_EQ(Get(JobMessage("shared")), Code::PERMISSION_DENIED);
}

TEST_F(ControlServiceTest, ListsMayBeOfOneJob) {
  v1::ListCommsRequest request;
  request.set_job_id(absl::StrCat("job-", kOther));
  v1::ListCommsResponse comms;
  ASSERT_TRUE(Call(&v1::Control::Stub::ListComms, request, &comms).ok());
  ASSERT_EQ(comms.comms_size(), 1);
  const v1::Comm& comm = comms.comms(0);
  EXPECT_EQ(comm.id(), kOther);
  EXPECT_EQ(comm.members(0).phase(), "idle");
  EXPECT_EQ(comm.settings().algorithm(), v1::ALGORITHM_AUTO);
  EXPECT_EQ(comm.settings().pici().intra(), policy::kPiciThresholds.intra);
  ASSERT_EQ(comm.counters().sends_by_format_size(), kFormatCount);
  EXPECT_EQ(comm.counters().sends_by_format(2).key(), "pici-column");
  EXPECT_EQ(comm.counters().sends_by_format(2).value(), 3u);
}

TEST_F(ControlServiceTest, EachSendsDecisionsAndWhereTimeWentAreTold) {
  auto sends = std::make_shared<SendsInfo>(
      SendsInfo{.operation = "all_reduce", .algorithm = "split", .steps = {}});
  sends->steps.resize(2);
  sends->steps[0].decisions[static_cast<size_t>(policy::Reason::kEmpty)] = 3;
  runtime::SendStepStats& step = sends->steps[1];
  step.phase = Phase::kAllGather;
  step.link = policy::Link::kInter;
  step.decisions[static_cast<size_t>(policy::Reason::kExtrapolatedAbove)] = 5;
  step.sparsity_sum = 1.5;
  step.sparsity_count = 2;
  step.threshold = 0.25;
  step.wire_bytes = 10;
  step.dense_bytes = 40;
  step.formats[static_cast<size_t>(Format::kGap)] = 5;
  step.runners_up[static_cast<size_t>(Format::kCoo)] = 4;
  step.forecasts = 5;
  step.predicted_ns = 900;
  step.runner_up_ns = 1000;
  step.predicted_encode_ns = 300;
  step.predicted_wire_ns = 700;
  step.encode_ns = 310;
  step.wire_ns = 720;
  core_.Update([&sends](Snapshot* snapshot) { snapshot->comms[0].last_sends = sends; });
  v1::ListCommsResponse comms;
  ASSERT_TRUE(Call(&v1::Control::Stub::ListComms, v1::ListCommsRequest(), &comms).ok());
  EXPECT_EQ(comms.comms(0).counters().encode_ns(), 77u);
  EXPECT_EQ(comms.comms(0).counters().room_wait_ns(), 5u);
  EXPECT_FALSE(comms.comms(1).has_last_sends());
  const v1::Sends& told = comms.comms(0).last_sends();
  EXPECT_EQ(told.operation(), "all_reduce");
  EXPECT_EQ(told.algorithm(), "split");
  ASSERT_EQ(told.steps_size(), 2);
  EXPECT_FALSE(told.steps(0).has_sparsity());
  EXPECT_FALSE(told.steps(0).has_threshold());
  EXPECT_EQ(told.steps(1).step(), 1u);
  EXPECT_EQ(told.steps(1).phase(), "all_gather");
  EXPECT_EQ(told.steps(1).link(), "inter");
  ASSERT_EQ(told.steps(1).decisions_size(), 1);
  EXPECT_EQ(told.steps(1).decisions(0).key(), "extrapolated-above");
  EXPECT_EQ(told.steps(1).decisions(0).value(), 5u);
  EXPECT_EQ(told.steps(1).sparsity(), 0.75);
  EXPECT_EQ(told.steps(1).threshold(), 0.25);
  EXPECT_EQ(told.steps(1).wire_bytes(), 10u);
  EXPECT_EQ(told.steps(1).dense_bytes(), 40u);
  EXPECT_FALSE(told.steps(0).has_forecast());
  ASSERT_EQ(told.steps(1).formats_size(), 1);
  EXPECT_EQ(told.steps(1).formats(0).key(), "gap");
  EXPECT_EQ(told.steps(1).formats(0).value(), 5u);
  ASSERT_EQ(told.steps(1).runners_up_size(), 1);
  EXPECT_EQ(told.steps(1).runners_up(0).key(), "coo");
  EXPECT_EQ(told.steps(1).runners_up(0).value(), 4u);
  const v1::Forecast& forecast = told.steps(1).forecast();
  EXPECT_EQ(forecast.sends(), 5u);
  EXPECT_EQ(forecast.chosen_ns(), 900u);
  EXPECT_EQ(forecast.runner_up_ns(), 1000u);
  EXPECT_EQ(forecast.encode_ns(), 300u);
  EXPECT_EQ(forecast.wire_ns(), 700u);
  EXPECT_EQ(told.steps(1).encode_ns(), 310u);
  EXPECT_EQ(told.steps(1).wire_ns(), 720u);
}

TEST_F(ControlServiceTest, SettingsReachTheStoreAndComeBack) {
  v1::SetSettingsRequest set;
  *set.mutable_scope() = JobMessage("job-1001");
  set.mutable_settings()->set_codec(v1::CODEC_COO);
  set.mutable_settings()->mutable_coo()->set_ag(0.25);
  set.mutable_settings()->mutable_pici()->set_inter(0);  // zero is a value, not "unset"
  v1::SetSettingsResponse changed;
  ASSERT_TRUE(Call(&v1::Control::Stub::SetSettings, set, &changed).ok());
  EXPECT_EQ(changed.communicators(), 1u);
  EXPECT_EQ(changed.resolved().coo().ag(), 0.25);
  EXPECT_EQ(changed.resolved().coo().intra(), policy::kCooThresholds.intra);
  EXPECT_EQ(settings_->Resolve("job-1001", 5).codec, policy::Codec::kCoo);
  EXPECT_EQ(settings_->Resolve("job-1001", 5).pici.inter, 0);
  v1::GetSettingsRequest get;
  *get.mutable_scope() = JobMessage("job-1001");
  v1::GetSettingsResponse got;
  ASSERT_TRUE(Call(&v1::Control::Stub::GetSettings, get, &got).ok());
  EXPECT_EQ(got.overrides().codec(), v1::CODEC_COO);
  EXPECT_EQ(got.overrides().algorithm(), v1::ALGORITHM_UNSPECIFIED);
  EXPECT_TRUE(got.overrides().pici().has_inter());
  EXPECT_FALSE(got.overrides().pici().has_intra());
  EXPECT_EQ(got.resolved().algorithm(), v1::ALGORITHM_AUTO);
  ASSERT_EQ(Reset(JobMessage("job-1001")), Code::OK);
  EXPECT_EQ(settings_->Get(JobScope{"job-1001"}), policy::Overrides{});
}

TEST_F(ControlServiceTest, ASettingsChangeIsAnEvent) {
  std::vector<Event> events;
  auto subscription =
      core_.Subscribe(0, [&events](const Event& event) { events.push_back(event); });
  ASSERT_EQ(Set(JobMessage(absl::StrCat("job-", kOwner)), SomeSettings()), Code::OK);
  ASSERT_EQ(Reset(JobMessage(absl::StrCat("job-", kOwner))), Code::OK);
  EXPECT_NE(Set(JobMessage(absl::StrCat("job-", kOwner)), v1::Settings()), Code::OK);
  subscription.reset();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, "settings-changed");
  EXPECT_EQ(events[0].job_id, absl::StrCat("job-", kOwner));
  EXPECT_EQ(events[0].uid, kOwner);
  EXPECT_THAT(events[0].message, HasSubstr("set "));
  EXPECT_THAT(events[1].message, HasSubstr("reset all"));
}

TEST_F(ControlServiceTest, WrongRequestsAreRefused) {
  EXPECT_EQ(Get(v1::Scope()), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Set(GlobalScopeMessage(), v1::Settings()), Code::INVALID_ARGUMENT);
  v1::Settings settings;
  settings.mutable_pici()->set_intra(1.5);
  EXPECT_EQ(Set(GlobalScopeMessage(), settings), Code::INVALID_ARGUMENT);
  settings.Clear();
  settings.set_algorithm(static_cast<v1::Algorithm>(99));
  EXPECT_EQ(Set(GlobalScopeMessage(), settings), Code::INVALID_ARGUMENT);
  settings.Clear();
  settings.set_codec(static_cast<v1::Codec>(-3));
  EXPECT_EQ(Set(GlobalScopeMessage(), settings), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Set(JobMessage("new\nline"), SomeSettings()), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Abort(kOwner, std::string(201, 'x')), Code::INVALID_ARGUMENT);
  EXPECT_EQ(settings_->Get(GlobalScope{}), policy::Overrides{});
}

TEST_F(ControlServiceTest, AFailedWriteIsReported) {
  std::filesystem::remove_all(folder_);
  EXPECT_NE(Set(GlobalScopeMessage(), SomeSettings()), Code::OK);
  EXPECT_EQ(settings_->Get(GlobalScope{}), policy::Overrides{});
}

TEST_F(ControlServiceTest, ARegisteredJobIsThereUntilItEnds) {
  caller_ = {.uid = 0, .administrator = true};
  ASSERT_EQ(RegisterJob(77, 4711), Code::OK);
  ASSERT_EQ(RegisterJob(77, 4711), Code::OK);
  EXPECT_EQ(RegisterJob(77, 4712), Code::ALREADY_EXISTS);
  EXPECT_EQ(RegisterJob(0, 4711), Code::INVALID_ARGUMENT);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&v1::Control::Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  const auto& listed = jobs.jobs(jobs.jobs_size() - 1);
  EXPECT_EQ(listed.id(), "u4711.j77");
  EXPECT_EQ(listed.uid(), 4711u);
  EXPECT_TRUE(listed.registered());
  EXPECT_FALSE(jobs.jobs(0).registered());
  policy::Overrides overrides;
  overrides.algorithm = policy::Algorithm::kRing;
  ASSERT_TRUE(settings_->Set(JobScope{"u4711.j77"}, overrides).ok());

  v1::EndJobResponse ended;
  ASSERT_EQ(EndJob(77, 4711, &ended), Code::OK);
  EXPECT_TRUE(ended.was_registered());
  EXPECT_EQ(ended.registered_left(), 0u);
  EXPECT_EQ(ended.job_id(), "u4711.j77");
  EXPECT_EQ(settings_->Get(JobScope{"u4711.j77"}), policy::Overrides{});
  ASSERT_EQ(EndJob(77, 4711, &ended), Code::OK);
  EXPECT_FALSE(ended.was_registered());
}

TEST_F(ControlServiceTest, SharesAreAdministratorsAndReachTheCore) {
  const std::string id = absl::StrCat("job-", kOwner);
  v1::SetJobShareRequest set;
  set.set_job_id(id);
  set.mutable_share()->set_weight(2);
  v1::SetJobShareResponse answer;
  const auto set_it = [&] { return Call(&v1::Control::Stub::SetJobShare, set, &answer); };
  v1::ResetJobShareRequest reset;
  reset.set_job_id(id);
  v1::ResetJobShareResponse forgotten;
  const auto reset_it = [&] {
    return Call(&v1::Control::Stub::ResetJobShare, reset, &forgotten).error_code();
  };
  // Not even its own job's.
  caller_ = {.uid = kOwner, .administrator = false};
  EXPECT_EQ(set_it().error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(reset_it(), Code::PERMISSION_DENIED);
  EXPECT_EQ(core_.refreshes(), 0);
  caller_ = {.uid = kMember, .administrator = true};
  ASSERT_EQ(set_it().error_code(), Code::OK);
  EXPECT_EQ(answer.boot_id(), kBootId);
  EXPECT_EQ(answer.resolved().weight(), 2u);
  EXPECT_TRUE(answer.resolved().has_max_channels());
  EXPECT_EQ(settings_->ShareOf(id).weight, 2u);
  EXPECT_EQ(core_.refreshes(), 1);
  // A user's reset of its job's settings leaves it.
  caller_ = {.uid = kOwner, .administrator = false};
  ASSERT_EQ(Reset(JobMessage(id)), Code::OK);
  EXPECT_EQ(settings_->ShareOf(id).weight, 2u);
  caller_ = {.uid = 0, .administrator = true};
  set.mutable_share()->set_weight(1001);
  EXPECT_THAT(set_it().error_message(), HasSubstr("weight: found 1001"));
  set.clear_share();
  EXPECT_EQ(set_it().error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(reset_it(), Code::OK);
  EXPECT_EQ(forgotten.resolved().weight(), 1u);
  EXPECT_EQ(core_.refreshes(), 2);
}

TEST_F(ControlServiceTest, AJobIsRegisteredWithItsShareAndEndsWithIt) {
  caller_ = {.uid = 0, .administrator = true};
  v1::RegisterJobRequest request;
  request.set_number(77);
  request.set_uid(4711);
  request.mutable_share()->set_max_communicators(3);
  request.mutable_share()->set_weight(0);
  v1::RegisterJobResponse response;
  const auto register_it = [&] {
    return Call(&v1::Control::Stub::RegisterJob, request, &response).error_code();
  };
  EXPECT_EQ(register_it(), Code::INVALID_ARGUMENT);
  EXPECT_TRUE(jobs_->List().empty());
  request.mutable_share()->set_weight(5);
  ASSERT_EQ(register_it(), Code::OK);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&v1::Control::Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  const auto& listed = jobs.jobs(jobs.jobs_size() - 1);
  EXPECT_EQ(listed.share().weight(), 5u);
  EXPECT_EQ(listed.share().max_communicators(), 3u);
  v1::EndJobResponse ended;
  ASSERT_EQ(EndJob(77, 4711, &ended), Code::OK);
  EXPECT_EQ(settings_->ShareOf("u4711.j77"), JobShare{});
}

TEST_F(ControlServiceTest, AbortAndDrainReachTheCore) {
  caller_ = {.uid = kOwner, .administrator = false};
  ASSERT_EQ(Abort(kOwner, "stuck"), Code::OK);
  EXPECT_THAT(core_.aborts(),
              ElementsAre(std::pair<uint64_t, std::string>(kOwner, "aborted by uid 1001: stuck")));
  caller_ = kCallers[0];
  ASSERT_EQ(Drain(false), Code::OK);
  EXPECT_TRUE(core_.GetSnapshot()->core.draining);
  ASSERT_EQ(Drain(true), Code::OK);
  EXPECT_FALSE(core_.GetSnapshot()->core.draining);
}

TEST_F(ControlServiceTest, TheCoresErrorsArePassedOn) {
  core_.Fail(absl::DeadlineExceededError("the core does not answer"));
  v1::GetStatusResponse response;
  const grpc::Status status =
      Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &response);
  EXPECT_EQ(status.error_code(), Code::INTERNAL);
  EXPECT_EQ(status.error_message(), "the core does not answer");
}

TEST_F(ControlServiceTest, TelemetryComesAtOnceAndAgainAndIsFiltered) {
  caller_ = {.uid = kOwner, .administrator = false};
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamTelemetryRequest request;
  request.set_interval_ms(10);
  const auto reader = stub_->StreamTelemetry(&context, request);
  v1::Telemetry first, second;
  ASSERT_TRUE(reader->Read(&first));
  core_.Update([](Snapshot* snapshot) { snapshot->core.draining = true; });
  do {
    ASSERT_TRUE(reader->Read(&second));
  } while (!second.status().draining());
  EXPECT_EQ(first.boot_id(), kBootId);
  EXPECT_GT(second.monotonic_nanos(), first.monotonic_nanos());
  ASSERT_EQ(first.jobs_size(), 1);
  EXPECT_EQ(first.jobs(0).uid(), kOwner);
  ASSERT_EQ(first.comms_size(), 1);
  EXPECT_EQ(first.status().counters().ops(), kOwner);
  context.TryCancel();
  while (reader->Read(&first)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), Code::CANCELLED);
}

TEST_F(ControlServiceTest, TelemetryIntervalsAreChecked) {
  for (const uint32_t wrong : {1u, 9u, 3'600'001u}) {
    grpc::ClientContext context;
    Limit(&context);
    v1::StreamTelemetryRequest request;
    request.set_interval_ms(wrong);
    const auto reader = stub_->StreamTelemetry(&context, request);
    v1::Telemetry telemetry;
    EXPECT_FALSE(reader->Read(&telemetry));
    EXPECT_EQ(reader->Finish().error_code(), Code::INVALID_ARGUMENT);
  }
}

Event EventOf(uid_t uid, const std::string& message) {
  return {.sequence = 0,
          .unix_nanos = 7,
          .kind = "comm-ready",
          .job_id = "j",
          .comm_id = 3,
          .uid = uid,
          .message = message};
}

TEST_F(ControlServiceTest, KeptEventsComeFirstAndOthersEventsNotAtAll) {
  core_.Emit(EventOf(kOwner, "one"));
  core_.Emit(EventOf(kOther, "secret"));
  core_.Emit(EventOf(kOwner, "three"));
  for (const Caller& caller : kCallers) {
    caller_ = caller;
    grpc::ClientContext context;
    Limit(&context);
    v1::StreamEventsRequest request;
    request.set_from_sequence(1);
    const auto reader = stub_->StreamEvents(&context, request);
    std::vector<std::string> messages;
    v1::StreamEventsResponse response;
    while (reader->Read(&response)) {
      EXPECT_EQ(response.boot_id(), kBootId);
      EXPECT_EQ(response.lost(), 0u);
      messages.push_back(response.event().message());
    }
    EXPECT_TRUE(reader->Finish().ok());
    if (caller.administrator) {
      EXPECT_THAT(messages, ElementsAre("one", "secret", "three"));
    } else if (caller.uid == kOwner) {
      EXPECT_THAT(messages, ElementsAre("one", "three"));
    } else {
      EXPECT_THAT(messages, IsEmpty());
    }
  }
}

TEST_F(ControlServiceTest, FollowedEventsComeAsTheyHappenWithTheirGaps) {
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamEventsRequest request;
  request.set_follow(true);
  const auto reader = stub_->StreamEvents(&context, request);
  reader->WaitForInitialMetadata();
  core_.Emit(EventOf(kOwner, "first"));
  v1::StreamEventsResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.event().message(), "first");
  EXPECT_EQ(response.lost(), 0u);
  core_.Emit(EventOf(kOwner, "after a gap"), 5);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.event().message(), "after a gap");
  EXPECT_EQ(response.lost(), 5u);
  service_->Stop();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), Code::CANCELLED);
  EXPECT_TRUE(core_.WaitForSubscribers(0));
}

TEST_F(ControlServiceTest, ACallerThatGoesAwayIsUnsubscribed) {
  grpc::ClientContext context;
  v1::StreamEventsRequest request;
  request.set_follow(true);
  const auto reader = stub_->StreamEvents(&context, request);
  ASSERT_TRUE(core_.WaitForSubscribers(1));
  context.TryCancel();
  EXPECT_TRUE(core_.WaitForSubscribers(0));
}

TEST_F(ControlServiceTest, EachUserHasAShareOfTheCalls) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::StreamEventsResponse>>> readers;
  v1::StreamEventsRequest request;
  request.set_follow(true);
  caller_ = {.uid = kStranger, .administrator = false};
  for (int i = 0; i < CallLimit::kCallsPerUser; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->StreamEvents(contexts.back().get(), request));
    readers.back()->WaitForInitialMetadata();
  }
  v1::GetStatusResponse response;
  grpc::Status status = Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &response);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("uid 1002 has 32 calls in progress"));
  caller_ = kCallers[0];
  EXPECT_TRUE(Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &response).ok());
  for (const auto& context : contexts) context->TryCancel();
  EXPECT_TRUE(core_.WaitForSubscribers(0));
}

}  // namespace
}  // namespace spccl::daemon
