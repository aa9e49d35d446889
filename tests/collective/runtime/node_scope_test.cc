// Nodes that run operations over real UCX connections, all in this process.
#include "collective/runtime/node_scope.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cluster.h"
#include "tests/collective/runtime/ucx_nodes.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

using policy::Algorithm;
using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;
using ::testing::HasSubstr;

// Runs the case as operation `sequence`, every node on threads of its own.
void RunCase(UcxNodes* nodes, const ClusterCase& c, uint64_t sequence, RankMemory* memory,
             std::vector<OpResult>* results) {
  policy::Tuning tuning;
  tuning.algorithm = c.algorithm;
  tuning.slice_bytes = c.slice_bytes;
  std::vector<std::unique_ptr<ResultBox>> boxes;
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < nodes->size(); ++node) {
    boxes.push_back(std::make_unique<ResultBox>());
    threads.emplace_back([&, node, box = boxes[node].get()] {
      auto made = nodes->Make(node, sequence, c.op, *memory, c.settings, tuning, box->Fn());
      ASSERT_TRUE(made.ok()) << made.status();
      if (c.algorithm != Algorithm::kAuto) {
        EXPECT_EQ(made->algorithm, c.algorithm);
      }
      RunTask(made->task.get(), 1 + static_cast<int>(node % 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& box : boxes) {
    ASSERT_EQ(box->calls(), 1);
    results->push_back(*box->result());
  }
}

void ExpectRight(UcxNodes* nodes, const ClusterCase& c, uint64_t sequence) {
  SCOPED_TRACE(Describe(c));
  const std::vector<Bytes> inputs = InputsOf(c);
  RankMemory memory(c.op, inputs, c.in_place, c.remote);
  std::vector<OpResult> results;
  RunCase(nodes, c, sequence, &memory, &results);
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  for (const OpResult& result : results) ASSERT_TRUE(result.status.ok()) << result.status;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference = FirstDifference(c.op.dtype, memory.Received(rank), expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
}

TEST(NodeScopeTest, EveryAlgorithmOverUcx) {
  std::mt19937_64 random(TestSeed());
  for (const std::vector<uint32_t>& node_of_rank :
       {std::vector<uint32_t>{0, 1}, std::vector<uint32_t>{0, 1, 0, 2}}) {
    UcxNodes nodes(node_of_rank);
    uint64_t sequence = 0;
    for (int algorithm = 0; algorithm < policy::kAlgorithmCount; ++algorithm) {
      // What the wire's facts know.
      for (int kind = 0; kind < kOpKindCount; ++kind) {
        ClusterCase c;
        c.algorithm = static_cast<Algorithm>(algorithm);
        if (c.algorithm == Algorithm::kLocal) continue;
        c.op = {.kind = static_cast<OpKind>(kind), .count = 1 + random() % 100'000};
        if (c.algorithm != Algorithm::kAuto && !policy::HasPlan(c.algorithm, c.op.kind)) continue;
        c.node_of_rank = node_of_rank;
        c.sparsity = random() % 2 == 0 ? 0.2 : 0.98;
        c.in_place = random();
        c.remote = random() & random();
        c.slice_bytes = random() % 2 == 0 ? 0 : 4096;
        c.seed = random();
        ExpectRight(&nodes, c, sequence++);
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct Tried {
  RedOp redop = RedOp::kSum;
  double density = 0.02;  // as the nodes agreed on it
};

// Where codec and thresholds are auto, ways to send are tried. Runs one such operation, which takes
// each node the time that it is asked for by its number and the way, and must come out right; says
// which ways the nodes went.
std::vector<std::string> TryOnce(UcxNodes* nodes, uint64_t sequence,
                                 const std::function<int64_t(uint32_t, const std::string&)>& took,
                                 const Tried& tried = {}) {
  ClusterCase c;
  c.algorithm = Algorithm::kSplit;
  c.op = {.kind = OpKind::kAllReduce, .redop = tried.redop, .count = 20'000};
  c.node_of_rank = {0, 1};
  c.sparsity = 0.98;
  c.settings = {.pici = policy::kAutoThresholds, .coo = policy::kAutoThresholds};
  policy::Tuning tuning;
  tuning.algorithm = c.algorithm;
  tuning.densities.fill(tried.density);
  const std::vector<Bytes> inputs = InputsOf(c);
  RankMemory memory(c.op, inputs, false, false);
  std::vector<std::thread> threads;
  std::vector<std::string> way(nodes->size());
  for (uint32_t node = 0; node < nodes->size(); ++node) {
    threads.emplace_back([&, node] {
      ResultBox box;
      auto made = nodes->Make(node, sequence, c.op, memory, c.settings, tuning, box.Fn());
      ASSERT_TRUE(made.ok()) << made.status();
      RunTask(made->task.get(), 1);
      way[node] = made->way;
      nodes->scope(node).Note(c.op.kind, box.result()->stats, took(node, made->way));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto difference =
      FirstDifference(c.op.dtype, memory.Received(0), CollectiveOracle(c.op, inputs)[0]);
  EXPECT_FALSE(difference.has_value()) << way[0] << ", element " << *difference;
  return way;
}

TEST(NodeScopeTest, TheWayThatWasFastestStays) {
  UcxNodes nodes({0, 1});
  std::vector<std::string> ways;
  for (uint64_t sequence = 0; sequence < 40; ++sequence) {
    const std::vector<std::string> went = TryOnce(
        &nodes, sequence, [](uint32_t, const std::string& way) { return way == "coo" ? 50 : 80; });
    EXPECT_EQ(went[0], went[1]) << "operation " << sequence;
    ways.push_back(went[0]);
  }
  EXPECT_EQ(ways.front(), "model");
  EXPECT_THAT(ways, ::testing::IsSupersetOf({"pici", "coo", "gap"}));
  EXPECT_THAT(std::vector<std::string>(ways.end() - 10, ways.end()), ::testing::Each("coo"));
}

TEST(NodeScopeTest, DensitiesThatVaryALittleAreTriedAsOne) {
  UcxNodes nodes({0, 1});
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<double> density(0.018, 0.022);
  std::vector<std::string> ways;
  for (uint64_t sequence = 0; sequence < 40; ++sequence) {
    ways.push_back(TryOnce(&nodes, sequence,
                           [](uint32_t, const std::string& way) { return way == "coo" ? 50 : 80; },
                           {.density = density(random)})[0]);
  }
  EXPECT_THAT(std::vector<std::string>(ways.end() - 10, ways.end()), ::testing::Each("coo"));
}

// A maximum has one way, as it always goes dense; a sum has several.
TEST(NodeScopeTest, WhatStaysDenseIsNotTriedAlongWithSums) {
  UcxNodes nodes({0, 1});
  std::vector<std::string> ways;
  for (uint64_t sequence = 0; sequence < 80; ++sequence) {
    const bool is_max = sequence % 2 == 0;
    const std::string way = TryOnce(
        &nodes, sequence, [](uint32_t, const std::string& way) { return way == "coo" ? 50 : 80; },
        {.redop = is_max ? RedOp::kMax : RedOp::kSum})[0];
    if (is_max) {
      EXPECT_EQ(way, "model");
    } else {
      ways.push_back(way);
    }
  }
  EXPECT_THAT(std::vector<std::string>(ways.end() - 10, ways.end()), ::testing::Each("coo"));
}

// Nodes that see different ways to be fastest go the leader's.
TEST(NodeScopeTest, AllGoTheWayThatWasFastestForTheLeader) {
  UcxNodes nodes({0, 1});
  const auto took = [](uint32_t node, const std::string& way) {
    return way == (node == 0 ? "coo" : "pici") ? 50 : 80;
  };
  std::optional<NodeScope::Lead> news;
  uint64_t sequence = 0;
  for (; !news && sequence < 500; ++sequence) {
    TryOnce(&nodes, sequence, took);
    news = nodes.scope(0).TakeNews();
  }
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->way, "coo");
  EXPECT_THAT(TryOnce(&nodes, sequence++, took), ::testing::ElementsAre("coo", "pici"));
  EXPECT_EQ(nodes.scope(1).Follow(*news), OpKind::kAllReduce);
  EXPECT_THAT(TryOnce(&nodes, sequence++, took), ::testing::ElementsAre("coo", "coo"));
  EXPECT_FALSE(nodes.scope(0).TakeNews().has_value());  // nothing new

  // What is not tried here, or never was run, changes nothing.
  EXPECT_FALSE(nodes.scope(1).Follow({.operations = news->operations, .way = "by air"}));
  EXPECT_FALSE(nodes.scope(1).Follow({.operations = news->operations + 1, .way = "pici"}));
  EXPECT_THAT(TryOnce(&nodes, sequence++, took), ::testing::ElementsAre("coo", "coo"));
}

TEST(NodeScopeTest, WhatTheLinkWasGivenIsBounded) {
  ClusterCase c;
  c.algorithm = Algorithm::kTree;
  c.op = {.kind = OpKind::kBroadcast, .count = uint64_t{2} << 20};
  c.settings.codec = policy::Codec::kDense;
  c.slice_bytes = 0;
  c.seed = TestSeed();
  UcxNodes nodes(c.node_of_rank);
  std::atomic<bool> ended{false};
  uint64_t most = 0;
  std::thread watcher([&] {
    while (!ended) {
      most = std::max(most, nodes.link(0, 1)->counters().unsent_bytes);
      std::this_thread::yield();
    }
  });
  ExpectRight(&nodes, c, 0);
  ended = true;
  watcher.join();
  // The window, and one frame.
  EXPECT_LE(most, transport::ucx::SendWindow::kFullBytes + (uint64_t{257} << 10));
}

TEST(NodeScopeTest, NodesThatWouldRunDifferentPlansAreToldSo) {
  UcxNodes nodes({0, 1});
  ClusterCase c;
  c.op = {.count = 1000};
  RankMemory memory(c.op, InputsOf(c), 0, 0);
  ResultBox boxes[2];
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (uint32_t node : {0U, 1U}) {
    threads.emplace_back([&, node] {
      policy::Tuning tuning;
      tuning.algorithm = node == 0 ? Algorithm::kRing : Algorithm::kRecursiveDoubling;
      auto made = nodes.Make(node, 0, c.op, memory, {}, tuning, boxes[node].Fn());
      statuses[node] = made.status();
      if (!made.ok()) return;
      RunTask(made->task.get(), 1);
      statuses[node] = boxes[node].result()->status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("ranks disagree"));
  }
}

TEST(NodeScopeTest, ALinkThatEndsFailsTheOperationOnBothSides) {
  for (int round = 0; round < 5; ++round) {
    UcxNodes nodes({0, 1, 0, 1});
    ClusterCase c;
    c.op = {.count = uint64_t{1} << 20};
    c.node_of_rank = {0, 1, 0, 1};
    RankMemory memory(c.op, InputsOf(c), 0, 0);
    ResultBox boxes[2];
    std::unique_ptr<Task> tasks[2];
    for (uint32_t node : {0U, 1U}) {
      auto made = nodes.Make(node, 0, c.op, memory, {}, {}, boxes[node].Fn());
      ASSERT_TRUE(made.ok()) << made.status();
      tasks[node] = std::move(made->task);
    }
    std::vector<std::thread> threads;
    for (uint32_t node : {0U, 1U}) {
      threads.emplace_back([&, node] {
        if (node == 0) {
          spccl::testing::ScratchMemory scratch;
          for (int i = 0; i < round; ++i) tasks[0]->RunOne(scratch.span());
          nodes.fabric(0).Disconnect(nodes.link(0, 1), absl::UnavailableError("cut"));
          nodes.fabric(1).Disconnect(nodes.link(1, 0), absl::UnavailableError("cut"));
        }
        RunTask(tasks[node].get(), 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t node : {0U, 1U}) {
      ASSERT_EQ(boxes[node].calls(), 1);
      EXPECT_FALSE(boxes[node].result()->status.ok());
      EXPECT_EQ(boxes[node].result()->culprit_rank, static_cast<int>(1 - node));
    }
  }
}

TEST(NodeScopeTest, WhatCannotRunIsRefused) {
  EXPECT_FALSE(NodeScope::Create({0, 1}, 2).ok());
  auto scope = NodeScope::Create({0, 1}, 1);
  ASSERT_TRUE(scope.ok());
  EXPECT_THAT((*scope)->local_ranks(), ::testing::ElementsAre(1));
  const RankBuffers buffers;
  const OpenTransport open = [](uint64_t,
                                uint64_t) -> absl::StatusOr<std::unique_ptr<transport::Transport>> {
    return absl::UnavailableError("no link");
  };
  const auto make = [&](const OpDesc& op) {
    return (*scope)->MakeTask(op, {&buffers, 1}, {}, {}, open, [](const OpResult&) {}).status();
  };
  EXPECT_EQ(make({.kind = OpKind::kBroadcast, .root = 2, .count = 1}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({.count = UINT64_MAX / 2}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make({.count = 1}), absl::UnavailableError("no link"));
}

}  // namespace
}  // namespace spccl::runtime
