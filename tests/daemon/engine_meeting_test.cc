// What nodes tell each other of themselves and their links when they meet, and what follows. The
// other nodes are played by the test; tests/integration/meeting_test.cc has real ones.
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/message_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/engine_meeting_fixture.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawRank;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(EngineMeetingTest, GoCarriesTheSlowestOfAllNodes) {
  Begin(/*measures=*/true);
  nodes_->SetSpeed(kA, {.round_trip_ns = 100'000, .bytes_per_second = 5e9});
  // A shares this daemon's machine, B is alone on one of four cores.
  FormHere({{kA, JoinOf(6, kMachine)}, {kB, JoinOf(4, 78)}});
  EXPECT_EQ(Parse(form_.tuning().costs()).cores, 3);
  SayReady(kA, 80e-6, 3e9);
  SayReady(kB, 10e-6, 4e9);
  for (const NodeId node : {kA, kB}) {
    const policy::Costs costs = Parse(nodes_->Await(node, Kind::kGo).go().costs());
    EXPECT_EQ(costs.alpha, 80e-6);
    EXPECT_EQ(costs.link_rate, 3e9);  // faster than the default: measured is measured
    EXPECT_EQ(costs.cores, 3);
  }
  EXPECT_THAT(nodes_->measured(), ElementsAre(kA));  // the next in the ring, and no other
  ExpectInit();
}

TEST_F(EngineMeetingTest, TheRootsOwnLinkCountsToo) {
  Begin(/*measures=*/true);
  nodes_->SetSpeed(kA, {.round_trip_ns = 200'000, .bytes_per_second = 1e8});
  FormHere({{kA, JoinOf(2, 78)}});
  SayReady(kA, 80e-6, 3e9);
  const policy::Costs costs = Parse(nodes_->Await(kA, Kind::kGo).go().costs());
  EXPECT_DOUBLE_EQ(costs.alpha, 100e-6);
  EXPECT_EQ(costs.link_rate, 1e8);
  ExpectInit();
}

TEST_F(EngineMeetingTest, ALinkThatNeverAnswersDoesNotBlock) {
  Begin(/*measures=*/false);
  nodes_->SetSpeed(kA, {.round_trip_ns = 100'000});
  FormHere({{kA, JoinOf(2, 78)}});
  SayReady(kA, 0, 0);
  const policy::Costs costs = Parse(nodes_->Await(kA, Kind::kGo).go().costs());
  EXPECT_DOUBLE_EQ(costs.alpha, 50e-6);
  EXPECT_EQ(costs.link_rate, policy::Costs().link_rate);
  ExpectInit();
}

TEST_F(EngineMeetingTest, WhatHasArrivedInTimeCounts) {
  Begin(/*measures=*/false);
  nodes_->SetSpeed(kA, {.round_trip_ns = 100'000, .bytes_per_second = 1e6});
  FormHere({{kA, JoinOf(2, 78)}});
  SayReady(kA, 1e-6, 1e9);
  EXPECT_EQ(Parse(nodes_->Await(kA, Kind::kGo).go().costs()).link_rate, 1e6);
  ExpectInit();
}

TEST_F(EngineMeetingTest, ALinkOfImpossibleSpeedFailsTheMeeting) {
  for (const double wrong : {std::nan(""), -1.0, static_cast<double>(INFINITY)}) {
    Begin(/*measures=*/true);
    FormHere({{kA, JoinOf(2, 78)}});
    SayReady(kA, 1e-6, wrong);
    ExpectInit("impossible speed");
  }
}

TEST_F(EngineMeetingTest, ANodeSaysWhatItMeasured) {
  Begin(/*measures=*/true);
  nodes_->SetSpeed(kA, {.round_trip_ns = 300'000, .bytes_per_second = 2e8});
  MeetAtA();
  EXPECT_EQ(join_.machine(), kMachine);
  EXPECT_EQ(Parse(join_.costs()).cores, kCores);
  const v1::Ready ready = nodes_->Await(kA, Kind::kReady).ready();
  EXPECT_DOUBLE_EQ(ready.alpha(), 150e-6);
  EXPECT_EQ(ready.link_rate(), 2e8);
  EXPECT_THAT(nodes_->measured(), ElementsAre(kA));
  SayGo(kA, CostsOf(1));
  ExpectInit();
}

TEST_F(EngineMeetingTest, OnlyTheRootSaysGo) {
  Begin(/*measures=*/true);
  MeetAtA();
  EXPECT_EQ(nodes_->Await(kA, Kind::kReady).kind_case(), Kind::kReady);
  SayGo(kB, CostsOf(1));
  v1::PeerMessage failed;
  failed.mutable_comm_failed()->set_comm_key(form_.comm_key());
  failed.mutable_comm_failed()->set_code(static_cast<uint32_t>(absl::StatusCode::kAborted));
  failed.mutable_comm_failed()->set_message("enough");
  nodes_->Say(kA, failed);
  ExpectInit("enough");  // B's Go has opened nothing
}

TEST_F(EngineMeetingTest, AGoWithImpossibleCostsFailsTheMeeting) {
  Begin(/*measures=*/true);
  MeetAtA();
  EXPECT_EQ(nodes_->Await(kA, Kind::kReady).kind_case(), Kind::kReady);
  policy::Costs costs;
  costs.link_rate = 0;
  SayGo(kA, costs);
  ExpectInit("impossible costs");
}

TEST_F(EngineMeetingTest, AnotherNodesDaemonThatStopsIsALossOfItsRanks) {
  Begin(/*measures=*/true);
  MeetAtA();
  EXPECT_EQ(nodes_->Await(kA, Kind::kReady).kind_case(), Kind::kReady);
  SayStopping(form_.comm_key());
  ExpectLoss("lost rank 1: node2: spccld is stopping");
}

TEST_F(EngineMeetingTest, AnotherNodesDaemonThatStopsWhileRanksMeetIsNamedItself) {
  Begin(/*measures=*/true);
  UniqueIdBytes id;
  ASSERT_NO_FATAL_FAILURE(AskA(&id));
  SayStopping(BytesOf(ParseUniqueId(id)->key));
  ExpectLoss("lost the daemon on node2 (fake:2): node2: spccld is stopping");
}

TEST_F(EngineMeetingTest, ARootThatIsLostEndsTheFormingAndIsNamed) {
  Begin(/*measures=*/true);
  UniqueIdBytes id;
  ASSERT_NO_FATAL_FAILURE(AskA(&id));
  nodes_->Down(kA, absl::UnavailableError("nothing heard of node2 (fake:2) for 2.5 s"));
  ExpectLoss("forming the communicator: nothing heard of node2 (fake:2) for 2.5 s");
}

TEST_F(EngineMeetingTest, ARootThatCannotBeMetEndsTheFormingWithItsOwnCode) {
  Begin(/*measures=*/true);
  UniqueIdBytes id;
  ASSERT_NO_FATAL_FAILURE(AskA(&id));
  nodes_->Down(kA, absl::FailedPreconditionError("node2 speaks another version"));
  const auto reply = client_->AwaitReply(request_id_);
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply->result, static_cast<uint32_t>(shm::Result::kInvalidUsage));
  EXPECT_THAT(reply->message, HasSubstr("forming the communicator: node2 speaks another version"));
}

// In the next three a rank of B leaves, by which the daemon sees that another algorithm was set.
TEST_F(EngineMeetingTest, ANodeThatHasLeftIsNotAskedBeforeATuningChanges) {
  MeetHereAndSetAlgorithm();
  SayLeft(kB, 2);
  const v1::PeerMessage prepare = nodes_->Await(kA, Kind::kTuningPrepare);
  SayPrepared(kA, prepare.tuning_prepare().epoch(), 5);
  const v1::PeerMessage commit = nodes_->Await(kA, Kind::kTuningCommit);
  ASSERT_EQ(commit.kind_case(), Kind::kTuningCommit);
  EXPECT_EQ(commit.tuning_commit().from_sequence(), 5u);
}

TEST_F(EngineMeetingTest, ANodeThatLeavesIsNoLongerWaitedForBeforeATuningChanges) {
  MeetHereAndSetAlgorithm();
  SayLeft(kB, 2);
  EXPECT_EQ(nodes_->Await(kA, Kind::kTuningPrepare).kind_case(), Kind::kTuningPrepare);
  SayLeft(kA, 1);
  const v1::PeerMessage commit = nodes_->Await(kB, Kind::kTuningCommit);
  EXPECT_EQ(commit.kind_case(), Kind::kTuningCommit);
}

// An operation that is held until the other nodes have prepared is still theirs to wait for,
// whether the rank that has submitted it dies or leaves.
TEST_F(EngineMeetingTest, WhoGoesWithAnOperationThatIsHeldFailsTheCommunicator) {
  for (const bool dies : {true, false}) {
    MeetHereAndSetAlgorithm();
    {
      RawRank rank{.client = std::move(*client_), .handle = static_cast<uint32_t>(comm_id_)};
      const auto buffer = rank.client.Allocate(64);
      ASSERT_THAT(buffer, IsOk());
      ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, 4, 0, 32)));
      EXPECT_EQ(nodes_->Await(kA, Kind::kTuningPrepare).kind_case(), Kind::kTuningPrepare);
      if (!dies) {
        shm::Request destroy = rank.client.Make(shm::RequestType::kCommDestroy);
        destroy.comm.comm_id = rank.handle;
        EXPECT_THAT(rank.client.Call(destroy), IsOk());
      }
    }
    for (const NodeId node : {kA, kB}) {
      const v1::PeerMessage failed = nodes_->Await(node, Kind::kCommFailed);
      ASSERT_EQ(failed.kind_case(), Kind::kCommFailed) << "dies " << dies << ", node " << node;
      EXPECT_EQ(failed.comm_failed().culprit(), 0);
      EXPECT_THAT(failed.comm_failed().message(), HasSubstr(dies ? "rank 0" : "has left"));
    }
  }
}

TEST_F(EngineMeetingTest, OnlyTheLeaderTellsHowToSend) {
  MeetHereAndSetAlgorithm();
  v1::PeerMessage message;
  message.mutable_lead()->set_comm_key(form_.comm_key());
  nodes_->Say(kA, message);
  const v1::PeerMessage failed = nodes_->Await(kB, Kind::kCommFailed);
  ASSERT_EQ(failed.kind_case(), Kind::kCommFailed);
  EXPECT_THAT(failed.comm_failed().message(), HasSubstr("a node that does not lead"));
}

TEST_F(EngineMeetingTest, ALeaderThatLeavesTakesBackATuningThatIsPrepared) {
  MeetHereAndSetAlgorithm();
  SayLeft(kB, 2);
  const v1::PeerMessage prepare = nodes_->Await(kA, Kind::kTuningPrepare);
  shm::Request destroy = client_->Make(shm::RequestType::kCommDestroy);
  destroy.comm.comm_id = static_cast<uint32_t>(comm_id_);
  EXPECT_THAT(client_->Call(destroy), IsOk());
  const v1::PeerMessage commit = nodes_->Await(kA, Kind::kTuningCommit);
  ASSERT_EQ(commit.kind_case(), Kind::kTuningCommit);
  EXPECT_EQ(commit.tuning_commit().epoch(), prepare.tuning_prepare().epoch());
  EXPECT_EQ(commit.tuning_commit().from_sequence(), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace spccl::daemon
