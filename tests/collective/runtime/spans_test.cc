// What tasks write down of their work, and what they say that they do.
#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "collective/runtime/make_task.h"
#include "collective/runtime/span_ring.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/rank_memory.h"
#include "tests/support/task_runner.h"

namespace spccl::runtime {
namespace {

using testing::Bytes;

constexpr uint64_t kOperation = 5;

class SpansTest : public ::testing::Test {
 protected:
  SpansTest() { SpanRing::SetOfThisThread(&ring_); }
  ~SpansTest() override { SpanRing::SetOfThisThread(nullptr); }

  std::unique_ptr<Task> Make(policy::Algorithm algorithm, uint32_t ranks, uint64_t count) {
    std::mt19937_64 random(1);
    const OpDesc op{.count = count};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      inputs_.push_back(testing::RandomElements(op.dtype, count, 0.9, false, &random));
    }
    memory_ = std::make_unique<testing::RankMemory>(op, inputs_, 0, 0);
    const policy::Settings settings{.algorithm = algorithm, .codec = policy::Codec::kPici};
    auto task = MakeTask(op, memory_->buffers(), settings, {.slice_bytes = 16 << 10}, box_.Fn());
    EXPECT_TRUE(task.ok()) << task.status();
    (*task)->SetOperation(kOperation);
    return *std::move(task);
  }
  // On this thread, as a channel thread does.
  void RunAll(Task* task) {
    do {
      ring_.BeginSlice(1);
    } while (task->RunOne(scratch_.span()) != Progress::kDone);
    EXPECT_EQ(box_.calls(), 1);
  }
  std::vector<Span> Of(SpanKind kind) const {
    std::vector<Span> spans = ring_.Read();
    std::erase_if(spans, [kind](const Span& span) { return span.kind != kind; });
    return spans;
  }

  SpanRing ring_{4096};
  testing::ScratchMemory scratch_;
  testing::ResultBox box_;
  std::vector<Bytes> inputs_;
  std::unique_ptr<testing::RankMemory> memory_;
};

TEST_F(SpansTest, ARingWritesWhatItEncodesSendsReducesAndStores) {
  const auto task = Make(policy::Algorithm::kRing, 3, 50'000);
  RunAll(task.get());
  const OpStats stats = box_.result()->stats;
  uint64_t sent = 0;
  for (const Span& span : Of(SpanKind::kSend)) sent += span.bytes;
  EXPECT_EQ(sent, stats.wire_bytes);
  for (const Span& span : ring_.Read()) {
    EXPECT_EQ(span.operation, kOperation);
    EXPECT_LT(span.rank, 3U);
    EXPECT_GT(span.begin_ns, 0);
  }
  ASSERT_FALSE(Of(SpanKind::kEncode).empty());
  EXPECT_FALSE(Of(SpanKind::kStore).empty());
  const std::vector<Span> reduces = Of(SpanKind::kReduce);
  ASSERT_FALSE(reduces.empty());
  for (const Span& span : reduces) {
    EXPECT_EQ(span.peer, (span.rank + 2) % 3);  // what came is from the rank before
    if (span.format == Format::kDense) continue;
    EXPECT_GT(span.density, 0);
    EXPECT_LT(span.density, 1);
  }
}

TEST_F(SpansTest, TheLocalPlanWritesItsSlicesWhereTheyAreTimed) {
  const auto task = Make(policy::Algorithm::kLocal, 2, 50'000);
  RunAll(task.get());
  const std::vector<Span> slices = Of(SpanKind::kLocal);
  EXPECT_EQ(slices.size(), (50'000 * 4 + (16 << 10) - 1) / (16 << 10));
  uint64_t bytes = 0;
  std::set<uint32_t> lanes;
  for (const Span& span : slices) {
    bytes += span.bytes;
    lanes.insert(span.lane);
    EXPECT_EQ(span.rank, kNoRank);
  }
  EXPECT_EQ(bytes, 50'000U * 4);
  EXPECT_EQ(lanes.size(), slices.size());
}

TEST_F(SpansTest, NothingIsWrittenWithoutARing) {
  SpanRing::SetOfThisThread(nullptr);
  const auto task = Make(policy::Algorithm::kRing, 2, 10'000);
  RunAll(task.get());
  EXPECT_TRUE(ring_.Read().empty());
}

TEST_F(SpansTest, ATaskSaysHowFarItIsAndWhatIsNext) {
  const auto task = Make(policy::Algorithm::kRing, 2, 50'000);
  const TaskLook before = task->Look();
  EXPECT_EQ(before.progress, 0U);
  EXPECT_EQ(before.taken, 0U);
  EXPECT_GT(before.total, 1U);
  ASSERT_FALSE(before.lines.empty());
  for (const TaskLook::Line& line : before.lines) {
    // A ring begins with a send of each: nothing waits yet.
    EXPECT_EQ(line.doing, TaskLook::Doing::kQueued);
    EXPECT_EQ(line.step, "send");
    EXPECT_GT(line.count, 0U);
    EXPECT_GT(line.since_ns, 0);
  }
  task->RunOne(scratch_.span());
  EXPECT_GT(task->Look().progress, 0U);
  RunAll(task.get());
  const TaskLook after = task->Look();
  EXPECT_EQ(after.taken, after.total);
  EXPECT_TRUE(after.lines.empty());
}

TEST_F(SpansTest, ALocalTaskCountsItsSlices) {
  const auto task = Make(policy::Algorithm::kLocal, 2, 50'000);
  EXPECT_EQ(task->Look().taken, 0U);
  task->RunOne(scratch_.span());
  EXPECT_EQ(task->Look().taken, 1U);
  EXPECT_EQ(task->Look().progress, 1U);
  RunAll(task.get());
  EXPECT_EQ(task->Look().taken, task->Look().total);
}

}  // namespace
}  // namespace spccl::runtime
