#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/daemon/control_service_fixture.h"

namespace spccl::daemon {
namespace {

// What each method answers to {root, group member, owner, stranger}, about the owner's things.
TEST_F(ControlServiceTest, EveryChangeTimesEveryCaller) {
  constexpr Code kYes = Code::OK, kNo = Code::PERMISSION_DENIED, kNone = Code::NOT_FOUND;
  const v1::Scope global = GlobalScopeMessage();
  const v1::Scope job = JobMessage(absl::StrCat("job-", kOwner)), no_job = JobMessage("none");
  const v1::Scope ended = JobMessage(absl::StrCat("u", kOwner, ".s7"));  // there is none now
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
      {"get ended job", [&] { return Get(ended); }, {kYes, kYes, kYes, kNo}},
      {"set ended job", [&] { return Set(ended, SomeSettings()); }, {kYes, kYes, kNo, kNo}},
      {"reset ended job", [&] { return Reset(ended); }, {kYes, kYes, kYes, kNo}},
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

TEST_F(ControlServiceTest, AUserIsToldThatItsJobIsNotThere) {
  caller_ = {.uid = kOwner, .administrator = false};
  const auto refusal = [this](const std::string& job) {
    v1::SetSettingsRequest request;
    *request.mutable_scope() = JobMessage(job);
    *request.mutable_settings() = SomeSettings();
    v1::SetSettingsResponse response;
    return Call(&v1::Control::Stub::SetSettings, request, &response).error_message();
  };
  EXPECT_EQ(refusal("u1001.s7"),
            "job u1001.s7 is not there now: only administrators set what one will run with");
  EXPECT_EQ(refusal("u1002.s7"), "no job u1002.s7 is owned by uid 1001");
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

// Whatever the user has done with names of its own.
TEST_F(ControlServiceTest, AdministratorsGiveSharesToAUserWhoHasUsedItsRoom) {
  policy::Overrides overrides;
  overrides.codec = policy::Codec::kCoo;
  for (size_t i = 0; i < SettingsStore::kMaxJobsOfUser; ++i) {
    const JobScope scope{absl::StrCat("u", kOwner, ".s", i)};
    ASSERT_TRUE(settings_->Set(scope, overrides).ok());
  }
  caller_ = kCallers[0];
  EXPECT_EQ(RegisterJob(77, kOwner, {.weight = 5}), Code::OK);
  const std::string id = absl::StrCat("u", kOwner, ".j77");
  EXPECT_EQ(settings_->ShareOf(id).weight, 5u);
  caller_ = {.uid = kOwner, .administrator = false};
  EXPECT_EQ(Set(JobMessage(id), SomeSettings()), Code::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reset(JobMessage(absl::StrCat("u", kOwner, ".s0"))), Code::OK);
  EXPECT_EQ(Set(JobMessage(id), SomeSettings()), Code::OK) << "registered, if not yet connected";
}

TEST_F(ControlServiceTest, AJobIdOfTwoUsersIsOwnedByNeither) {
  core_.Update([](Snapshot* snapshot) {
    for (JobInfo& job : snapshot->jobs) job.id = "shared";
  });
  caller_ = {.uid = kOwner, .administrator = false};
  EXPECT_EQ(Set(JobMessage("shared"), SomeSettings()), Code::PERMISSION_DENIED);
  EXPECT_EQ(Get(JobMessage("shared")), Code::PERMISSION_DENIED);
  const std::string named = absl::StrCat("u", kOwner, ".s7");
  core_.Update([&](Snapshot* snapshot) {
    for (JobInfo& job : snapshot->jobs) job.id = named;
  });
  EXPECT_EQ(Reset(JobMessage(named)), Code::PERMISSION_DENIED);
  EXPECT_EQ(Get(JobMessage(named)), Code::PERMISSION_DENIED);
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
  EXPECT_EQ(comm.settings().pici().intra(), policy::kAutoThreshold);
  ASSERT_EQ(comm.counters().sends_by_format_size(), kFormatCount);
  EXPECT_EQ(comm.counters().sends_by_format(2).key(), "pici-column");
  EXPECT_EQ(comm.counters().sends_by_format(2).value(), 3u);
}

}  // namespace
}  // namespace spccl::daemon
