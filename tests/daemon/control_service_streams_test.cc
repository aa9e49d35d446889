#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/control_service_fixture.h"

namespace spccl::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(ControlServiceTest, AStreamOfACoreThatGetsStuckEndsAsItsCallsDo) {
  core_.Fail(absl::DeadlineExceededError("the core thread does not answer"), 3);
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamTelemetryRequest request;
  request.set_interval_ms(10);
  const auto reader = stub_->StreamTelemetry(&context, request);
  v1::Telemetry telemetry;
  int told = 0;
  while (reader->Read(&telemetry)) ++told;
  EXPECT_GE(told, 1);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), Code::INTERNAL);
  EXPECT_EQ(status.error_message(), "the core thread does not answer");
}

// A followed stream too: its subscription stands only once the core has taken it.
TEST_F(ControlServiceTest, EventsOfACoreThatGetsStuckEndAsItsCallsDo) {
  for (const bool follow : {false, true}) {
    core_.Fail(absl::DeadlineExceededError("the core thread does not answer"), 1);
    grpc::ClientContext context;
    Limit(&context);
    v1::StreamEventsRequest request;
    request.set_follow(follow);
    const auto reader = stub_->StreamEvents(&context, request);
    v1::StreamEventsResponse response;
    EXPECT_FALSE(reader->Read(&response)) << follow;
    EXPECT_EQ(reader->Finish().error_code(), Code::INTERNAL) << follow;
  }
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
