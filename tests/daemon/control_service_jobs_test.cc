#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/daemon/control_service_fixture.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST_F(ControlServiceTest, AJobEndsAlsoWhereItsShareCannotBeWritten) {
  caller_ = {.uid = 0, .administrator = true};
  ASSERT_TRUE(settings_->SetShare("another", {.weight = 2}).ok());
  ASSERT_EQ(RegisterJob(77, 4711, {.weight = 5}), Code::OK);
  ASSERT_EQ(::mkdir((folder_ + "/settings.toml.new").c_str(), 0755), 0);
  v1::EndJobResponse ended;
  EXPECT_EQ(EndJob(77, 4711, &ended), Code::OK);
  EXPECT_TRUE(ended.was_registered());
  EXPECT_EQ(settings_->ShareOf("u4711.j77"), JobShare{});
  EXPECT_EQ(EndJob(77, 4711, &ended), Code::OK);
  EXPECT_EQ(RegisterJob(77, 4711), Code::OK);
  EXPECT_EQ(settings_->ShareOf("u4711.j77"), JobShare{});
}

TEST_F(ControlServiceTest, AJobIsRegisteredWithItsShareOrNotAtAll) {
  caller_ = {.uid = 0, .administrator = true};
  ASSERT_TRUE(settings_->SetShare("u4711.j77", {.max_operations = 3}).ok());
  const JobShareOverrides before = settings_->GetShare("u4711.j77");
  const std::string no_jobs = folder_ + "/jobs.new", no_settings = folder_ + "/settings.toml.new";
  for (const std::string& in_the_way : {no_jobs, no_settings}) {
    ASSERT_EQ(::mkdir(in_the_way.c_str(), 0755), 0);
    EXPECT_NE(RegisterJob(77, 4711, {.weight = 5}), Code::OK) << in_the_way;
    EXPECT_TRUE(jobs_->List().empty()) << in_the_way;
    EXPECT_EQ(settings_->GetShare("u4711.j77"), before) << in_the_way;
    EXPECT_EQ(core_.refreshes(), 0);
    ASSERT_EQ(::rmdir(in_the_way.c_str()), 0);
  }
  ASSERT_EQ(RegisterJob(77, 4711, {.weight = 5}), Code::OK);
  // Another user's number: neither job changes.
  EXPECT_EQ(RegisterJob(77, 4712, {.weight = 6}), Code::ALREADY_EXISTS);
  EXPECT_EQ(settings_->ShareOf("u4712.j77"), JobShare{});
  EXPECT_EQ(settings_->ShareOf("u4711.j77").weight, 5u);
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

// Whoever is told "deadline exceeded" or "unavailable" thinks that the daemon is not reachable.
TEST_F(ControlServiceTest, ACoreThatGetsStuckInTheMiddleOfACallIsNotUnreachable) {
  v1::EndJobResponse ended;
  const std::pair<const char*, std::function<Code()>> calls[] = {
      {"drain", [&] { return Drain(false); }},
      {"abort", [&] { return Abort(kOwner); }},
      {"set", [&] { return Set(GlobalScopeMessage(), SomeSettings()); }},
      {"reset", [&] { return Reset(GlobalScopeMessage()); }},
      {"end job", [&] { return EndJob(7, kOwner, &ended); }}};
  for (const auto& [name, call] : calls) {
    core_.Fail(absl::DeadlineExceededError("the core thread does not answer"), 1);
    EXPECT_EQ(call(), Code::INTERNAL) << name;
  }
}

TEST_F(ControlServiceTest, ACoreThatHasStoppedIsUnreachable) {
  v1::EndJobResponse ended;
  core_.Fail(absl::UnavailableError("spccld has stopped"), 1);
  EXPECT_EQ(EndJob(7, kOwner, &ended), Code::UNAVAILABLE);
  core_.Fail(absl::UnavailableError("spccld has stopped"));
  v1::GetStatusResponse response;
  EXPECT_EQ(Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &response).error_code(),
            Code::UNAVAILABLE);
}

// A script that is told that nothing has changed would be wrong.
TEST_F(ControlServiceTest, SettingsThatAreInForceAreSaidToBeThoughTheCoreGetsStuck) {
  core_.Fail(absl::DeadlineExceededError("the core thread does not answer"), 1);
  v1::SetSettingsRequest request;
  *request.mutable_scope() = GlobalScopeMessage();
  *request.mutable_settings() = SomeSettings();
  v1::SetSettingsResponse response;
  const grpc::Status status = Call(&v1::Control::Stub::SetSettings, request, &response);
  EXPECT_EQ(status.error_code(), Code::INTERNAL);
  EXPECT_EQ(status.error_message(),
            "in force, but what holds now is not known: the core thread does not answer");
}

}  // namespace
}  // namespace spccl::daemon
