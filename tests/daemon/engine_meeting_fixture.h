// A daemon that meets others, which are played by the test: what it says to them as a communicator
// forms, and what comes of what they say.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

inline constexpr NodeId kA = 2, kB = 3;
inline constexpr uint64_t kMachine = 77;
inline constexpr double kCores = 8;

inline policy::Costs CostsOf(double cores) {
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
  using Kind = v1::PeerMessage::KindCase;

  void Begin(bool measures) {
    client_.reset();
    env_.reset();  // before the nodes that it uses
    nodes_ = std::make_unique<FakeNodes>(measures);
    CoreOptions options;
    options.costs = CostsOf(kCores);
    options.machine = kMachine;
    env_ = std::make_unique<spccl::testing::DaemonEnv>(options, nullptr, nodes_.get());
    for (const NodeId node : {kA, kB}) nodes_->Up(node);
    auto client = spccl::testing::RawClient::Open(env_->socket_path());
    ASSERT_THAT(client, spccl::testing::IsOk());
    client_ = std::make_unique<spccl::testing::RawClient>(*std::move(client));
  }

  // This daemon is the root, of rank 0 and of a rank on each of the given nodes.
  void FormHere(const std::vector<std::pair<NodeId, v1::Join>>& joins) {
    const auto id = client_->UniqueId();
    ASSERT_THAT(id, spccl::testing::IsOk());
    const auto ranks = static_cast<uint32_t>(joins.size()) + 1;
    const shm::Request init = client_->MakeCommInit(*id, ranks, 0);
    ASSERT_THAT(client_->Send(init), spccl::testing::IsOk());
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
    ASSERT_THAT(reply, spccl::testing::IsOk());
    ASSERT_EQ(reply->result, 0u) << reply->message;
    comm_id_ = reply->value;
    policy::Overrides tree;
    tree.algorithm = policy::Algorithm::kTree;
    ASSERT_THAT(env_->settings().Set(GlobalScope{}, tree), spccl::testing::IsOk());
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
    ASSERT_THAT(id, spccl::testing::IsOk());
    const shm::Request init = client_->MakeCommInit(std::string(id->begin(), id->end()), 3, 0);
    ASSERT_THAT(client_->Send(init), spccl::testing::IsOk());
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
    ASSERT_THAT(reply, spccl::testing::IsOk());
    EXPECT_EQ(reply->result, static_cast<uint32_t>(shm::Result::kRemoteError));
    EXPECT_THAT(reply->message, ::testing::HasSubstr(error));
  }

  // Fails the test unless CommInit has returned in time, with an error that says this; or well.
  void ExpectInit(const std::string& error = "") {
    const auto reply = client_->AwaitReply(request_id_);
    ASSERT_THAT(reply, spccl::testing::IsOk());
    if (error.empty()) {
      EXPECT_EQ(reply->result, 0u) << reply->message;
    } else {
      EXPECT_NE(reply->result, 0u);
      EXPECT_THAT(reply->message, ::testing::HasSubstr(error));
    }
  }

  std::unique_ptr<FakeNodes> nodes_;  // outlives the core
  std::unique_ptr<spccl::testing::DaemonEnv> env_;
  std::unique_ptr<spccl::testing::RawClient> client_;
  uint64_t request_id_ = 0, comm_id_ = 0;
  v1::Form form_;
  v1::Join join_;
};

}  // namespace spccl::daemon
