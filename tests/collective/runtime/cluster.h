// Several nodes of one operation, in one process: each with its own task, a network between them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collective/plan/make_plan.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/transport/fake/fake_net.h"
#include "collective/transport/mesh/mesh_transport.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {

struct ClusterCase {
  OpDesc op;
  std::vector<uint32_t> node_of_rank = {0, 1};
  policy::Algorithm algorithm = policy::Algorithm::kRing;
  policy::Settings settings;
  policy::Habit habit{};
  double sparsity = 0.9;
  bool specials = false;
  uint64_t in_place = 0, remote = 0;
  size_t slice_bytes = 256;
  uint32_t open_lanes = 3;
  size_t room_frames = 0;  // 0: no limit
  bool announces = false;
  uint64_t seed = 1;

  uint32_t ranks() const { return static_cast<uint32_t>(node_of_rank.size()); }
  uint32_t nodes() const { return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1; }
};

inline std::string Describe(const ClusterCase& c) {
  return absl::StrCat(
      std::string(policy::NameOf(c.algorithm)), " ", std::string(NameOf(c.op.kind)), " ",
      std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)), " count ", c.op.count,
      " root ", c.op.root, " nodes ", absl::StrJoin(c.node_of_rank, ","), " codec ",
      std::string(policy::NameOf(c.settings.codec)), " sparsity ", c.sparsity, " in place ",
      c.in_place, " remote ", c.remote, " slice ", c.slice_bytes, " lanes ", c.open_lanes, " room ",
      c.room_frames, c.announces ? " announces" : "", " seed ", c.seed);
}

inline std::vector<testing::Bytes> InputsOf(const ClusterCase& c) {
  std::mt19937_64 random(c.seed);
  std::vector<testing::Bytes> inputs;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(testing::ExactElements(c.op.dtype, SendElements(c.op, c.ranks()), c.sparsity,
                                            c.op.redop == RedOp::kProd, c.specials, &random));
  }
  return inputs;
}

class Cluster {
 public:
  Cluster(const ClusterCase& c, const std::vector<testing::Bytes>& inputs)
      : case_(c), memory_(c.op, inputs, c.in_place, c.remote), net_(c.seed, c.node_of_rank) {
    if (c.room_frames != 0) net_.LimitRoom(c.room_frames);
    if (c.announces) net_.AnnounceFrames();
    plan_ = Prepare(
        plan::MakePlan(c.algorithm, c.op.kind, c.node_of_rank, HasRoot(c.op.kind) ? c.op.root : 0));
    for (uint32_t node = 0; node < c.nodes(); ++node) {
      nodes_.push_back(std::make_unique<Node>());
      nodes_[node]->task = MakeTask(node);
    }
  }

  transport::FakeNet& net() { return net_; }
  PlanTask& task(uint32_t node) { return *nodes_[node]->task; }
  const testing::ResultBox& box(uint32_t node) const { return nodes_[node]->box; }
  transport::FramePool& pool() { return pool_; }
  testing::Bytes Received(uint32_t rank) const { return memory_.Received(rank); }

  // Until every node has ended, or nothing moves; false if some has not ended.
  bool Alternate() {
    testing::ScratchMemory scratch;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t node = 0; node < nodes_.size(); ++node) {
        if (box(node).calls() > 0) continue;
        while (task(node).RunOne(scratch.span()) == Progress::kRan) moved = true;
        moved |= box(node).calls() > 0;
      }
      moved |= net_.DeliverOne();
    }
    return Ended();
  }

  // Every node on threads of its own.
  void RunThreads(int threads) {
    std::vector<std::thread> all;
    for (const auto& node : nodes_) {
      all.emplace_back([&node, threads] { testing::RunTask(node->task.get(), threads); });
    }
    while (!Ended()) {
      if (!net_.DeliverOne()) std::this_thread::yield();
    }
    for (std::thread& thread : all) thread.join();
  }

  bool Ended() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->box.calls() > 0; });
  }

  // All nodes' together; of the same operation, which has ended well.
  OpStats Stats() const {
    OpStats stats;
    for (const auto& node : nodes_) stats.Add(node->box.result()->stats);
    return stats;
  }

 private:
  struct Node {
    testing::ResultBox box;
    std::unique_ptr<PlanTask> task;
  };

  std::unique_ptr<PlanTask> MakeTask(uint32_t node) {
    PlanTask::Options options;
    options.op = case_.op;
    options.plan = plan_;
    options.ranks.resize(case_.ranks());
    std::vector<bool> here(case_.ranks());
    for (uint32_t rank = 0; rank < case_.ranks(); ++rank) {
      if (case_.node_of_rank[rank] != node) continue;
      here[rank] = true;
      options.ranks[rank] = memory_.buffers()[rank];
      const uint32_t participant = plan_->participant_of_rank[rank];
      if (plan_->first_rank[participant] == rank) options.mine.push_back(participant);
    }
    options.node_of_rank = case_.node_of_rank;
    options.settings = case_.settings;
    options.habit = case_.habit;
    options.slice_bytes = case_.slice_bytes;
    options.open_lanes = case_.open_lanes + node;  // they need not agree
    options.transport = std::make_unique<transport::MeshTransport>(here, net_.Open(node));
    options.pool = &pool_;
    return std::make_unique<PlanTask>(std::move(options), nodes_[node]->box.Fn());
  }

  const ClusterCase case_;
  testing::RankMemory memory_;
  transport::FramePool pool_{size_t{1} << 20};
  transport::FakeNet net_;
  std::shared_ptr<const PreparedPlan> plan_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace spccl::runtime
