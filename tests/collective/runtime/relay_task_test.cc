#include "collective/runtime/host/relay_task.h"

#include <atomic>

#include "collective/runtime/make_task.h"
#include "gtest/gtest.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using spccl::testing::ResultBox;
using spccl::testing::ScratchMemory;

class FakeRelay final : public RankRelay {
 public:
  void Begin() override { ++begun; }
  bool IsDone() const override { return done; }
  void Decline() override { ++declined; }

  int begun = 0, declined = 0;
  std::atomic<bool> done{false};
};

class RelayTaskTest : public ::testing::Test {
 protected:
  const std::shared_ptr<FakeRelay> first_ = std::make_shared<FakeRelay>(),
                                   second_ = std::make_shared<FakeRelay>();
  ResultBox box_;
  ScratchMemory scratch_;
};

TEST_F(RelayTaskTest, EndsWhenAllRanksAreDone) {
  RelayTask task({first_, second_}, box_.Fn());
  int wakes = 0;
  task.SetWaker([&wakes] { ++wakes; });
  EXPECT_EQ(first_->begun, 1);
  EXPECT_EQ(second_->begun, 1);
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kIdle);
  second_->done = true;
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kIdle);
  EXPECT_EQ(box_.calls(), 0);
  first_->done = true;
  task.Nudge();
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kDone);
  EXPECT_EQ(box_.calls(), 1);
  EXPECT_TRUE(box_.result()->status.ok());
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kDone);
  task.Cancel(absl::AbortedError("too late"), 0);
  EXPECT_EQ(box_.calls(), 1);
}

TEST_F(RelayTaskTest, CancelEndsAnOperationWhoseRanksDoNotCome) {
  RelayTask task({first_, second_}, box_.Fn());
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kIdle);
  task.Cancel(absl::AbortedError("rank 1 has ended"), 1);
  ASSERT_EQ(box_.calls(), 1);
  EXPECT_EQ(box_.result()->status, absl::AbortedError("rank 1 has ended"));
  EXPECT_EQ(box_.result()->culprit_rank, 1);
  task.Cancel(absl::AbortedError("again"), 0);
  EXPECT_EQ(box_.calls(), 1);
  EXPECT_EQ(task.RunOne(scratch_.span()), Progress::kDone);
}

// All ranks must offer, and the algorithm must be the local one.
TEST_F(RelayTaskTest, IsChosenOnlyWhereAllCanAndTheDaemonDeclinesElse) {
  float memory[4] = {};
  auto* const data = reinterpret_cast<std::byte*>(memory);
  const MemoryView view = MemoryView::Mapped(data), other = MemoryView::Mapped(data + 8);
  const OpDesc op{.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .count = 2};
  std::vector<RankBuffers> ranks = {{.send = view, .recv = view, .relay = first_},
                                    {.send = other, .recv = other, .relay = nullptr}};
  policy::Settings settings;
  ASSERT_TRUE(MakeTask(op, ranks, settings, {}, box_.Fn()).ok());
  EXPECT_EQ(first_->declined, 1);
  ranks[1].relay = second_;
  ASSERT_TRUE(MakeTask(op, ranks, settings, {}, box_.Fn()).ok());
  EXPECT_EQ(first_->begun, 1);
  EXPECT_EQ(second_->begun, 1);
  settings.algorithm = policy::Algorithm::kRing;
  ASSERT_TRUE(MakeTask(op, ranks, settings, {}, box_.Fn()).ok());
  EXPECT_EQ(first_->declined, 2);
  EXPECT_EQ(second_->declined, 1);
  EXPECT_EQ(first_->begun, 1);
}

}  // namespace
}  // namespace spccl::runtime
