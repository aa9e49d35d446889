// An operation with lossy sends, all of whose participants run here.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collective/plan/make_plan.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/transport/local/local_transport.h"
#include "gtest/gtest.h"
#include "tests/support/rank_memory.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {

using policy::Algorithm;
using spccl::testing::Bytes;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;

struct Case {
  Algorithm algorithm = Algorithm::kTwoLevelRing;
  OpDesc op;
  std::vector<uint32_t> nodes;  // of each rank
  policy::Lossy lossy;
  policy::Codec codec = policy::Codec::kAuto;
  uint64_t in_place = 0, remote = 0;
  size_t slice_bytes = 0;
  int threads = 1;

  uint32_t ranks() const { return static_cast<uint32_t>(nodes.size()); }
  uint32_t participants() const {
    return algorithm == Algorithm::kRing ? ranks() : nodes.back() + 1;
  }
};

inline std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.algorithm)), " ", std::string(NameOf(c.op.kind)), " ",
                      std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " root ", c.op.root, " ranks ", c.ranks(), " on ",
                      c.nodes.back() + 1, " nodes, ", policy::TextOf(c.lossy), " in place ",
                      c.in_place, " remote ", c.remote, " slice ", c.slice_bytes);
}

struct Outcome {
  std::vector<Bytes> received;
  OpStats stats;
};

inline void RunCase(const Case& c, const std::vector<Bytes>& inputs, Outcome* outcome) {
  RankMemory memory(c.op, inputs, c.in_place, c.remote);
  PlanTask::Options options;
  options.op = c.op;
  options.plan = Prepare(plan::MakePlan(c.algorithm, c.op.kind, c.nodes, c.op.root));
  options.ranks = memory.buffers();
  options.node_of_rank = c.nodes;
  options.settings.lossy = c.lossy;
  options.settings.codec = c.codec;
  options.slice_bytes = c.slice_bytes;
  options.transport = std::make_unique<transport::LocalTransport>();
  options.pool = &transport::FramePool::Shared();
  ResultBox box;
  PlanTask task(std::move(options), box.Fn());
  RunTask(&task, c.threads);
  ASSERT_EQ(box.calls(), 1);
  ASSERT_TRUE(box.result()->status.ok()) << box.result()->status;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    outcome->received.push_back(memory.Received(rank));
  }
  outcome->stats = box.result()->stats;
}

template <class T>
T At(const Bytes& bytes, uint64_t element) {
  T value;
  std::memcpy(&value, bytes.data() + element * sizeof(T), sizeof(T));
  return value;
}

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline void ExpectAllAlike(const Case& c, const std::vector<Bytes>& received) {
  if (c.op.kind == OpKind::kReduceScatter || c.op.kind == OpKind::kScatter) return;
  for (uint32_t rank = 1; rank < c.ranks(); ++rank) {
    EXPECT_TRUE(received[rank] == received[0]) << "rank " << rank;
  }
}

inline std::vector<uint32_t> OneRankANode(uint32_t ranks) {
  std::vector<uint32_t> nodes(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) nodes[rank] = rank;
  return nodes;
}

}  // namespace spccl::runtime
