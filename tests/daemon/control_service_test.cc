#include "daemon/control_service.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/spccl/v1/flight_file.h"
#include "tests/daemon/control_service_fixture.h"

namespace spccl::daemon {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(changed.resolved().coo().intra(), policy::kAutoThreshold);
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

// The environment of its ranks is narrower than a communicator's job, and wider than itself.
TEST_F(ControlServiceTest, CommunicatorsWhoseEnvironmentDecidesAreCounted) {
  core_.Update([](Snapshot* all) { all->comms[0].wishes.algorithm = policy::Algorithm::kRing; });
  const auto decided = [this](const v1::Scope& scope, const v1::Settings& settings) {
    v1::SetSettingsRequest set;
    *set.mutable_scope() = scope;
    *set.mutable_settings() = settings;
    v1::SetSettingsResponse changed;
    EXPECT_TRUE(Call(&v1::Control::Stub::SetSettings, set, &changed).ok());
    return changed.environment_decides();
  };
  v1::Settings codec;
  codec.set_codec(v1::CODEC_COO);
  EXPECT_EQ(decided(JobMessage("job-1001"), SomeSettings()), 1u);
  EXPECT_EQ(decided(GlobalScopeMessage(), SomeSettings()), 1u);
  EXPECT_EQ(decided(JobMessage("job-1001"), codec), 0u);
  EXPECT_EQ(decided(JobMessage("job-1003"), SomeSettings()), 0u);
  v1::ResetSettingsRequest reset;
  *reset.mutable_scope() = JobMessage("job-1001");
  v1::ResetSettingsResponse changed;
  ASSERT_TRUE(Call(&v1::Control::Stub::ResetSettings, reset, &changed).ok());
  EXPECT_EQ(changed.environment_decides(), 1u);
  reset.set_part(v1::SETTINGS_PART_CODEC);
  ASSERT_TRUE(Call(&v1::Control::Stub::ResetSettings, reset, &changed).ok());
  EXPECT_EQ(changed.environment_decides(), 0u);
  EXPECT_EQ(decided(CommMessage(1001), SomeSettings()), 0u);
  EXPECT_EQ(decided(GlobalScopeMessage(), SomeSettings()), 0u);  // the communicator's own decides
}

// What was set for a communicator, or its job, stands before what is set around it.
TEST_F(ControlServiceTest, CommunicatorsWithSettingsOfTheirOwnAreCounted) {
  const auto decided = [this](const v1::Scope& scope, const v1::Settings& settings) {
    v1::SetSettingsRequest set;
    *set.mutable_scope() = scope;
    *set.mutable_settings() = settings;
    v1::SetSettingsResponse changed;
    EXPECT_TRUE(Call(&v1::Control::Stub::SetSettings, set, &changed).ok());
    return changed.narrower_decides();
  };
  v1::Settings intra, inter;
  intra.mutable_pici()->set_intra(0.25);
  inter.mutable_pici()->set_inter(0.25);
  EXPECT_EQ(decided(CommMessage(1001), intra), 0u);
  EXPECT_EQ(decided(JobMessage("job-1001"), intra), 1u);
  EXPECT_EQ(decided(JobMessage("job-1001"), inter), 0u);
  EXPECT_EQ(decided(JobMessage("job-1003"), intra), 0u);
  EXPECT_EQ(decided(GlobalScopeMessage(), inter), 1u);  // the job's
  v1::ResetSettingsRequest reset;
  *reset.mutable_scope() = GlobalScopeMessage();
  reset.set_part(v1::SETTINGS_PART_CODEC);
  v1::ResetSettingsResponse changed;
  ASSERT_TRUE(Call(&v1::Control::Stub::ResetSettings, reset, &changed).ok());
  EXPECT_EQ(changed.narrower_decides(), 0u);
  reset.set_part(v1::SETTINGS_PART_ALL);
  ASSERT_TRUE(Call(&v1::Control::Stub::ResetSettings, reset, &changed).ok());
  EXPECT_EQ(changed.narrower_decides(), 2u);  // and job-1003's
}

TEST_F(ControlServiceTest, ASettingsChangeIsAnEvent) {
  std::vector<Event> events;
  auto subscription =
      core_.Subscribe(0, [&events](const EventPtr& event) { events.push_back(*event); });
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
  std::vector<Event> events;  // none, of what is refused: they are kept
  auto subscription =
      core_.Subscribe(0, [&events](const EventPtr& event) { events.push_back(*event); });
  for (const std::string& id : {std::string("new\nline"), std::string(257, 'x')}) {
    EXPECT_EQ(Set(JobMessage(id), SomeSettings()), Code::INVALID_ARGUMENT);
    EXPECT_EQ(Reset(JobMessage(id)), Code::INVALID_ARGUMENT);
    // Nor from a user, of a name that only its jobs have.
    caller_ = {.uid = kOwner, .administrator = false};
    EXPECT_EQ(Reset(JobMessage(absl::StrCat("u", kOwner, ".", id))), Code::INVALID_ARGUMENT);
    caller_ = kCallers[0];
  }
  subscription.reset();
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(Abort(kOwner, std::string(201, 'x')), Code::INVALID_ARGUMENT);
  EXPECT_EQ(settings_->Get(GlobalScope{}), policy::Overrides{});
}

TEST_F(ControlServiceTest, ARecordThatNobodyWouldReadIsRefusedWithItsSize) {
  v1::FlightRecord record;
  record.set_comm_id(kOwner);
  record.set_uid(kOwner);
  record.set_error(std::string(flight::kMostRecordBytes, 'x'));
  core_.SetFlight(std::move(record));
  v1::GetFlightRequest request;
  request.set_comm_id(kOwner);
  v1::GetFlightResponse response;
  const grpc::Status status = Call(&v1::Control::Stub::GetFlight, request, &response);
  EXPECT_EQ(status.error_code(), Code::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("expected at most 67108864"));
}

TEST_F(ControlServiceTest, AReasonSteersNoTerminal) {
  EXPECT_EQ(Abort(kOwner, "stop\x1b[2J\nspccl: all is well"), Code::OK);
  ASSERT_EQ(core_.aborts().size(), 1u);
  EXPECT_EQ(core_.aborts()[0].second, "aborted by uid 0: stop?[2J?spccl: all is well");
}

TEST_F(ControlServiceTest, AFailedWriteIsReported) {
  std::filesystem::remove_all(folder_);
  EXPECT_NE(Set(GlobalScopeMessage(), SomeSettings()), Code::OK);
  EXPECT_EQ(settings_->Get(GlobalScope{}), policy::Overrides{});
}

}  // namespace
}  // namespace spccl::daemon
