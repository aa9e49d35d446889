// What nodes tell each other of themselves and their links when they meet, and what follows. The
// other nodes are played by the test; tests/integration/meeting_test.cc has real ones.
#include <unistd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/message_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/daemon/fake_nodes.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = v1::PeerMessage::KindCase;

constexpr NodeId kA = 2, kB = 3;
constexpr uint64_t kMachine = 77;
constexpr double kCores = 8;

policy::Costs CostsOf(double cores) {
  policy::Costs costs;
  costs.cores = cores;
  return costs;
}

template <typename Values>
policy::Costs Parse(const Values& values) {
  const auto costs = policy::CostsFrom({values.data(), static_cast<size_t>(values.size())});
  EXPECT_TRUE(costs.has_value());
  return costs.value_or(policy::Costs());
}

// Nodes: this daemon, A, and B where it takes part.
class EngineMeetingTest : public ::testing::Test {
 protected:
  void Begin(bool measures) {
    client_.reset();
    env_.reset();  // before the nodes that it uses
    nodes_ = std::make_unique<FakeNodes>(measures);
    CoreOptions options;
    options.costs = CostsOf(kCores);
    options.machine = kMachine;
    env_ = std::make_unique<DaemonEnv>(options, nullptr, nodes_.get());
    for (const NodeId node : {kA, kB}) nodes_->Up(node);
    auto client = RawClient::Open(env_->socket_path());
    ASSERT_THAT(client, IsOk());
    client_ = std::make_unique<RawClient>(*std::move(client));
  }

  // This daemon is the root, of rank 0 and of a rank on each of the given nodes.
  void FormHere(const std::vector<std::pair<NodeId, v1::Join>>& joins) {
    const auto id = client_->UniqueId();
    ASSERT_THAT(id, IsOk());
    const auto ranks = static_cast<uint32_t>(joins.size()) + 1;
    const shm::Request init = client_->MakeCommInit(*id, ranks, 0);
    ASSERT_THAT(client_->Send(init), IsOk());
    request_id_ = init.request_id;
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      v1::PeerMessage message;
      *message.mutable_join() = joins[rank - 1].second;
      message.mutable_join()->set_unique_id(*id);
      message.mutable_join()->set_rank(rank);
      message.mutable_join()->set_ranks(ranks);
      message.mutable_join()->set_uid(::getuid());
      nodes_->Say(joins[rank - 1].first, message);
    }
    form_ = nodes_->Await(joins[0].first, Kind::kForm).form();
    ASSERT_EQ(form_.node_of_rank_size(), ranks);
  }

  static v1::Join JoinOf(double cores, uint64_t machine) {
    v1::Join join;
    for (const double cost : policy::ToArray(CostsOf(cores))) join.add_costs(cost);
    join.set_machine(machine);
    return join;
  }

  void SayReady(NodeId node, double alpha, double link_rate) {
    v1::PeerMessage message;
    message.mutable_ready()->set_comm_key(form_.comm_key());
    message.mutable_ready()->set_alpha(alpha);
    message.mutable_ready()->set_link_rate(link_rate);
    nodes_->Say(node, message);
  }

  void SayGo(NodeId node, const policy::Costs& costs) {
    v1::PeerMessage message;
    message.mutable_go()->set_comm_key(form_.comm_key());
    for (const double cost : policy::ToArray(costs)) message.mutable_go()->add_costs(cost);
    nodes_->Say(node, message);
  }

  // FormHere with A and B, ready; then an operator sets another algorithm.
  void MeetHereAndSetAlgorithm() {
    Begin(/*measures=*/true);
    FormHere({{kA, JoinOf(2, 78)}, {kB, JoinOf(2, 79)}});
    SayReady(kA, 80e-6, 3e9);
    SayReady(kB, 80e-6, 3e9);
    const auto reply = client_->AwaitReply(request_id_);
    ASSERT_THAT(reply, IsOk());
    ASSERT_EQ(reply->result, 0u) << reply->message;
    comm_id_ = reply->value;
    policy::Overrides tree;
    tree.algorithm = policy::Algorithm::kTree;
    ASSERT_THAT(env_->settings().Set(GlobalScope{}, tree), IsOk());
  }

  void SayLeft(NodeId node, uint32_t rank) {
    v1::PeerMessage message;
    message.mutable_leave()->set_comm_key(form_.comm_key());
    message.mutable_leave()->set_rank(rank);
    message.mutable_leave()->set_how("has left the communicator");
    nodes_->Say(node, message);
  }

  void SayPrepared(NodeId node, uint64_t epoch, uint64_t from_sequence) {
    v1::PeerMessage message;
    message.mutable_tuning_prepared()->set_comm_key(form_.comm_key());
    message.mutable_tuning_prepared()->set_epoch(epoch);
    message.mutable_tuning_prepared()->set_from_sequence(from_sequence);
    nodes_->Say(node, message);
  }

  // Rank 0 of 3 joins, by an id of A's.
  void AskA(UniqueIdBytes* issued) {
    const auto id = UniqueIds(kA, "fake:2").Issue(::getuid());
    ASSERT_THAT(id, IsOk());
    const shm::Request init = client_->MakeCommInit(std::string(id->begin(), id->end()), 3, 0);
    ASSERT_THAT(client_->Send(init), IsOk());
    request_id_ = init.request_id;
    join_ = nodes_->Await(kA, Kind::kJoin).join();
    *issued = *id;
  }

  // A is the root, of rank 0 here, rank 1 of its own, and rank 2 of B.
  void MeetAtA(uint64_t generation = 0, uint32_t gpus = 0) {
    UniqueIdBytes id;
    ASSERT_NO_FATAL_FAILURE(AskA(&id));
    v1::PeerMessage message;
    v1::Form& form = *message.mutable_form();
    form.set_unique_id(std::string(id.begin(), id.end()));
    form.set_comm_key(BytesOf(ParseUniqueId(id)->key));
    for (const NodeId node : {NodeId{1}, kA, kB}) {
      v1::Node& said = *form.add_nodes();
      said.set_boot_id(node);
      said.set_name(absl::StrCat("node", node));
      said.set_address(absl::StrCat("fake:", node));
      said.set_gpus(gpus);
      form.add_node_of_rank(static_cast<uint32_t>(form.nodes_size()) - 1);
      form.add_pid_of_rank(1);
    }
    form.set_gpu_generation(generation);
    v1::Tuning& tuning = *form.mutable_tuning();
    tuning.set_algorithm("auto");
    tuning.set_codec("auto");
    for (const double cost : policy::ToArray(CostsOf(1))) tuning.add_costs(cost);
    for (int kind = 0; kind < 5; ++kind) tuning.add_densities(1);
    form_ = form;
    nodes_->Say(kA, message);
  }

  // A fails the communicator, as a daemon does that was told to stop.
  void SayStopping(const std::string& comm_key) {
    v1::PeerMessage message;
    v1::CommFailed& failed = *message.mutable_comm_failed();
    failed.set_comm_key(comm_key);
    failed.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    failed.set_origin("node2");
    failed.set_message("spccld is stopping");
    nodes_->Say(kA, message);
  }

  // Fails the test unless CommInit has returned in time, with another's failure that says this.
  void ExpectLoss(const std::string& error) {
    const auto reply = client_->AwaitReply(request_id_);
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ(reply->result, static_cast<uint32_t>(shm::Result::kRemoteError));
    EXPECT_THAT(reply->message, HasSubstr(error));
  }

  // Fails the test unless CommInit has returned in time, with an error that says this; or well.
  void ExpectInit(const std::string& error = "") {
    const auto reply = client_->AwaitReply(request_id_);
    ASSERT_THAT(reply, IsOk());
    if (error.empty()) {
      EXPECT_EQ(reply->result, 0u) << reply->message;
    } else {
      EXPECT_NE(reply->result, 0u);
      EXPECT_THAT(reply->message, HasSubstr(error));
    }
  }

  std::unique_ptr<FakeNodes> nodes_;  // outlives the core
  std::unique_ptr<DaemonEnv> env_;
  std::unique_ptr<RawClient> client_;
  uint64_t request_id_ = 0, comm_id_ = 0;
  v1::Form form_;
  v1::Join join_;
};

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

GpuOffer OfferOf(uint32_t gpus, int version) {
  return {.gpus = gpus, .library_version = version, .generations = {}};
}

TEST_F(EngineMeetingTest, AWorldOfGpusIsChosenWhereAllCan) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  v1::Join join = JoinOf(2, 78);
  *join.mutable_gpu_offer() = ToMessage(OfferOf(4, 22809));
  v1::GpuWorld& known = *join.mutable_gpu_offer()->add_worlds();
  known.set_set(SetOf({{1, 8}, {kA, 4}}));
  known.set_generation(3);
  FormHere({{kA, join}});
  EXPECT_EQ(form_.gpu_generation(), 3U);
  EXPECT_EQ(form_.nodes(0).gpus(), 8U);
  EXPECT_EQ(form_.nodes(1).gpus(), 4U);
  SayReady(kA, 80e-6, 3e9);
  ExpectInit();
  const std::vector<ChannelOptions> opened = nodes_->opened();
  ASSERT_EQ(opened.size(), 1U);
  ASSERT_TRUE(opened[0].gpus.has_value());
  EXPECT_EQ(opened[0].gpus->generation, 3U);
  EXPECT_EQ(opened[0].gpus->nodes[1].gpus, 4U);
}

TEST_F(EngineMeetingTest, OneWithoutKeepsFramesOnTheHosts) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  v1::Join join = JoinOf(2, 78);
  *join.mutable_gpu_offer() = ToMessage(OfferOf(4, 22809));
  FormHere({{kA, join}, {kB, JoinOf(2, 79)}});  // B says nothing of GPUs
  EXPECT_EQ(form_.gpu_generation(), 0U);
  for (const NodeId node : {kA, kB}) SayReady(node, 80e-6, 3e9);
  ExpectInit();
  EXPECT_FALSE(nodes_->opened().at(0).gpus.has_value());
}

TEST_F(EngineMeetingTest, ANodeWithImpossiblyManyGpusIsRefused) {
  Begin(/*measures=*/true);
  v1::Join join = JoinOf(2, 78);
  join.mutable_gpu_offer()->set_gpus(kMostGpusOfNode + 1);
  const auto id = client_->UniqueId();
  ASSERT_THAT(id, IsOk());
  join.set_unique_id(*id);
  join.set_rank(1);
  join.set_ranks(2);
  join.set_uid(::getuid());
  v1::PeerMessage message;
  *message.mutable_join() = join;
  nodes_->Say(kA, message);
  EXPECT_THAT(nodes_->Await(kA, Kind::kCommFailed).comm_failed().message(), HasSubstr("1025 GPUs"));
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

TEST_F(EngineMeetingTest, ANodeSaysWhatGpusItHasAndOpensTheWorldItIsTold) {
  Begin(/*measures=*/true);
  nodes_->SetOffer(OfferOf(8, 22809));
  MeetAtA(/*generation=*/2, /*gpus=*/8);
  EXPECT_EQ(join_.gpu_offer().gpus(), 8U);
  EXPECT_EQ(join_.gpu_offer().library_version(), 22809U);
  EXPECT_EQ(nodes_->Await(kA, Kind::kReady).kind_case(), Kind::kReady);
  ASSERT_TRUE(nodes_->opened().at(0).gpus.has_value());
  EXPECT_EQ(nodes_->opened().at(0).gpus->generation, 2U);
  SayGo(kA, CostsOf(1));
  ExpectInit();
}

TEST_F(EngineMeetingTest, AWorldWithoutGpusOfANodeIsNonsense) {
  Begin(/*measures=*/true);
  MeetAtA(/*generation=*/1, /*gpus=*/0);
  ExpectInit("a world of GPUs with 0 of node1");
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
