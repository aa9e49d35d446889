// The runtime over a transport that delays, reorders, corrupts and dies.
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "collective/plan/ring.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/transport/fake/fake_net.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/seed.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::FirstDifference;
using spccl::testing::RandomElements;
using spccl::testing::RankMemory;
using spccl::testing::ResultBox;
using spccl::testing::RunTask;
using spccl::testing::ScratchMemory;
using ::testing::HasSubstr;
using transport::FakeNet;
using transport::Frame;
using transport::Tag;

constexpr uint32_t kRanks = 4;

class FakeRun {
 public:
  FakeRun(const OpDesc& op, uint64_t seed)
      : op_(op), inputs_(Inputs(op, seed)), memory_(op, inputs_, 0, 0), net_(seed) {
    PlanTask::Options options;
    options.op = op;
    options.plan = Prepare(plan::MakeRing(op.kind, plan::FlatMembers(kRanks), op.root));
    options.ranks = memory_.buffers();
    options.slice_bytes = 256;
    options.open_lanes = 3;
    options.transport = net_.Open(0);
    options.pool = &pool_;
    task_ = std::make_unique<PlanTask>(std::move(options), box_.Fn());
  }

  FakeNet& fake() { return net_; }
  PlanTask& task() { return *task_; }
  const ResultBox& box() const { return box_; }

  // Alternates between the task and the transport until the operation has ended.
  void Alternate() {
    ScratchMemory scratch;
    for (int rounds = 0; box_.calls() == 0; ++rounds) {
      ASSERT_LT(rounds, 1'000'000) << "stuck";
      bool moved = false;
      while (task_->RunOne(scratch.span()) == Progress::kRan) moved = true;
      if (box_.calls() == 0) moved |= net_.DeliverOne();
      ASSERT_TRUE(moved || box_.calls() > 0) << "nothing to run and nothing to deliver";
    }
  }

  void ExpectRight() {
    ASSERT_EQ(box_.calls(), 1);
    ASSERT_TRUE(box_.result()->status.ok()) << box_.result()->status;
    const std::vector<Bytes> expected = CollectiveOracle(op_, inputs_);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_FALSE(FirstDifference(op_.dtype, memory_.Received(rank), expected[rank]).has_value());
    }
  }

 private:
  static std::vector<Bytes> Inputs(const OpDesc& op, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      inputs.push_back(RandomElements(op.dtype, SendElements(op, kRanks), 0.9, false, &random));
    }
    return inputs;
  }

  OpDesc op_;
  std::vector<Bytes> inputs_;
  RankMemory memory_;
  transport::FramePool pool_{size_t{1} << 20};
  ResultBox box_;
  FakeNet net_;
  std::unique_ptr<PlanTask> task_;
};

// Integers: their sums do not depend on the order.
OpDesc Op(OpKind kind) {
  return {.kind = kind, .dtype = DType::kInt32, .count = 1000};
}

TEST(PlanTaskTransportTest, AnyOrderAcrossLanesGivesTheSameResult) {
  const uint64_t seed = TestSeed();
  for (uint64_t round = 0; round < 20; ++round) {
    for (int kind = 0; kind < kOpKindCount; ++kind) {
      if (!policy::HasPlan(policy::Algorithm::kRing, static_cast<OpKind>(kind))) continue;
      FakeRun run(Op(static_cast<OpKind>(kind)), seed + round);
      run.Alternate();
      run.ExpectRight();
    }
  }
}

TEST(PlanTaskTransportTest, FramesInFlightAreBounded) {
  FakeRun run(Op(OpKind::kAllReduce), TestSeed());
  run.Alternate();
  run.ExpectRight();
  EXPECT_LE(run.fake().most_waiting(), 3U * kRanks);
  EXPECT_GE(run.fake().most_waiting(), kRanks);
}

TEST(PlanTaskTransportTest, ThreadsSleepUntilFramesArrive) {
  FakeRun run(Op(OpKind::kAllReduce), TestSeed());
  std::thread network([&] {
    while (run.box().calls() == 0) {
      if (!run.fake().DeliverOne()) std::this_thread::yield();
    }
  });
  RunTask(&run.task(), 2);
  network.join();
  run.ExpectRight();
}

TEST(PlanTaskTransportTest, ADeadPeerIsTheCulprit) {
  const uint64_t seed = TestSeed();
  for (uint64_t after = 0; after < 40; ++after) {
    FakeRun run(Op(OpKind::kAllReduce), seed);
    run.fake().Kill(2, after, absl::UnavailableError("rank 2: connection lost"));
    run.Alternate();
    ASSERT_EQ(run.box().calls(), 1);
    EXPECT_EQ(run.box().result()->culprit_rank, 2) << after;
    EXPECT_EQ(run.box().result()->status.code(), absl::StatusCode::kUnavailable) << after;
  }
}

TEST(PlanTaskTransportTest, ABadFrameIsItsSendersFault) {
  const uint64_t seed = TestSeed();
  for (uint64_t skip = 0; skip < 30; ++skip) {
    FakeRun run(Op(OpKind::kAllReduce), seed);
    ScratchMemory scratch;
    while (run.task().RunOne(scratch.span()) == Progress::kRan) {
    }
    for (uint64_t i = 0; i < skip; ++i) {
      ASSERT_TRUE(run.fake().DeliverOne());
      while (run.task().RunOne(scratch.span()) == Progress::kRan) {
      }
    }
    uint32_t sender = 99;
    run.fake().RetagNext([&](Tag* tag) { sender = tag->from; });
    run.fake().CorruptNext([&](Frame* frame) { frame->data()[skip % 44] ^= std::byte{0x10}; });
    run.Alternate();
    ASSERT_EQ(run.box().calls(), 1);
    EXPECT_EQ(run.box().result()->status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(run.box().result()->status.message()), HasSubstr("bad frame"));
    EXPECT_EQ(run.box().result()->culprit_rank, static_cast<int>(sender));
  }
}

TEST(PlanTaskTransportTest, AShortFrameIsItsSendersFault) {
  FakeRun run(Op(OpKind::kAllGather), TestSeed());
  run.fake().CorruptNext([](Frame* frame) { frame->set_size_bytes(frame->size_bytes() - 1); });
  run.Alternate();
  EXPECT_EQ(run.box().result()->status.code(), absl::StatusCode::kDataLoss);
}

TEST(PlanTaskTransportTest, AFrameThatNobodyExpectsEndsTheOperation) {
  const std::function<void(Tag*)> lies[] = {
      [](Tag* tag) { tag->chunk = (tag->chunk + 1) % kRanks; },
      [](Tag* tag) { tag->chunk = 1'000'000; },
      [](Tag* tag) { tag->phase = Phase::kAllGather; },
      [](Tag* tag) { tag->lane += 3; },
      [](Tag* tag) { tag->lane = UINT64_MAX; },
      [](Tag* tag) { tag->to = kRanks; },
      [](Tag* tag) { tag->to = UINT32_MAX; },
      [](Tag* tag) { tag->from = UINT32_MAX; },
      [](Tag* tag) { tag->from = (tag->from + 1) % kRanks; },
  };
  for (const auto& lie : lies) {
    FakeRun run(Op(OpKind::kReduceScatter), TestSeed());
    run.fake().RetagNext(lie);
    run.Alternate();
    ASSERT_EQ(run.box().calls(), 1);
    EXPECT_EQ(run.box().result()->status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST(PlanTaskTransportTest, CancelWhileFramesAreOnTheirWay) {
  FakeRun run(Op(OpKind::kAllReduce), TestSeed());
  ScratchMemory scratch;
  while (run.task().RunOne(scratch.span()) == Progress::kRan) {
  }
  run.task().Cancel(absl::AbortedError("abort"), 1);
  ASSERT_EQ(run.box().calls(), 1);
  EXPECT_EQ(run.box().result()->culprit_rank, 1);
  EXPECT_FALSE(run.fake().DeliverOne());
  EXPECT_EQ(run.task().RunOne(scratch.span()), Progress::kDone);
}

}  // namespace
}  // namespace spccl::runtime
