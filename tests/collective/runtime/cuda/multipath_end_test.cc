// How all-reduces end of which a part goes over the host: ready late, cancelled, failing, and
// without memory.
#include <algorithm>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/runtime/cuda/host_rail.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/split_operation.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/seed.h"

namespace spccl::runtime {
namespace {

using spccl::testing::Bytes;
using spccl::testing::CollectiveOracle;
using spccl::testing::Doing;
using spccl::testing::ExactElements;
using spccl::testing::ExpectedHostBytes;
using spccl::testing::Fake;
using spccl::testing::FakeGpuOptions;
using spccl::testing::FirstDifference;
using spccl::testing::Forced;
using spccl::testing::FramesOut;
using spccl::testing::GpuRanks;
using spccl::testing::OpenFakeGpus;
using spccl::testing::SplitCase;
using spccl::testing::SplitOperation;
using spccl::testing::TheGpus;
using ::testing::HasSubstr;

TEST(MultipathEndTest, NothingIsTouchedBeforeItsRankIsReady) {
  std::mt19937_64 random(TestSeed());
  SplitCase c;
  c.op = {.count = 5000};
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 2; ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, c.op.count, 0, false, false, &random));
  }
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  SplitOperation running(TheGpus(), c, inputs, Forced(0.5));
  running.ranks.Enqueue(0);
  running.ranks.Enqueue(1, /*held=*/true);
  running.Start();
  std::this_thread::yield();
  EXPECT_EQ(running.outcome.calls(), 0);
  EXPECT_FALSE(running.task->Look().lines.empty());
  running.ranks.LetGo();
  EXPECT_TRUE(running.Wait().status.ok());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(
        FirstDifference(c.op.dtype, running.ranks.Received(rank), expected[rank]).has_value());
  }
}

TEST(MultipathEndTest, ADeadRankHoldsUpNobody) {
  for (const uint64_t resets : {0, 3}) {
    SplitCase c;
    c.op = {.count = 5000};
    c.resets = resets;
    SplitOperation running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
    running.ranks.Enqueue(0);  // rank 1 never comes
    running.Start();
    running.task->Cancel(absl::AbortedError("rank 1 died"), 1);
    const OpResult result = running.Wait();
    EXPECT_EQ(result.status, absl::AbortedError("rank 1 died"));
    EXPECT_EQ(result.culprit_rank, 1);
    const Bytes received = running.ranks.Received(0);
    EXPECT_TRUE(std::all_of(received.begin(), received.end(),
                            [](std::byte b) { return b == std::byte{0xA5}; }));
    running.task->Cancel(absl::AbortedError("again"), 0);
    EXPECT_EQ(running.outcome.calls(), 1);
    EXPECT_EQ(FramesOut(), 0U);
  }
}

TEST(MultipathEndTest, CancelBeforeTheStart) {
  SplitCase c;
  c.op = {.count = 5000};
  SplitOperation running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running.ranks.EnqueueAll();
  running.task->Cancel(absl::AbortedError("enough"), 0);
  EXPECT_EQ(running.outcome.calls(), 1);
  running.Start();
  EXPECT_EQ(running.outcome.calls(), 1);
  EXPECT_EQ(running.Wait().status, absl::AbortedError("enough"));
  for (uint32_t rank = 0; rank < 2; ++rank) (void)running.ranks.Received(rank);
}

TEST(MultipathEndTest, CancelInTheMiddleEndsOnceAndLetsGo) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    SplitCase c;
    c.op = {.count = 16384};
    c.gpus = {0, 1, 0};
    c.share = static_cast<double>(1 + random() % 9) / 10;
    SplitOperation running(TheGpus(), c, std::vector<Bytes>(3, Bytes(c.bytes())), Forced(c.share));
    running.ranks.EnqueueAll();
    std::thread canceller([&] { running.task->Cancel(absl::AbortedError("enough"), 2); });
    running.Start();
    canceller.join();
    const OpResult result = running.Wait();
    if (!result.status.ok()) {
      EXPECT_EQ(result.status, absl::AbortedError("enough"));
    }
    EXPECT_EQ(running.outcome.calls(), 1);
    EXPECT_EQ(FramesOut(), 0U);
    for (uint32_t rank = 0; rank < 3; ++rank) (void)running.ranks.Received(rank);
  }
}

// Nobody reduces what came down: until it is cancelled nothing is told, then all.
TEST(MultipathEndTest, CancelNeedsNoChannelThread) {
  SplitCase c;
  c.op = {.count = 16384};
  SplitOperation running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running.ranks.EnqueueAll();
  running.StartUntilDown();
  EXPECT_EQ(running.outcome.calls(), 0);
  EXPECT_THAT(Doing(running.task->Look()), HasSubstr("over the host"));
  const std::vector<TaskLook::Line> lines = running.task->Look().lines;
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().doing, TaskLook::Doing::kQueued);
  running.task->Cancel(absl::AbortedError("enough"), 0);
  EXPECT_EQ(running.Wait().status, absl::AbortedError("enough"));
  EXPECT_EQ(running.task->ForChannels()->RunOne({}), Progress::kDone);
  EXPECT_EQ(FramesOut(), 0U);
  for (uint32_t rank = 0; rank < 2; ++rank) (void)running.ranks.Received(rank);
}

// No pinned memory, or less than would be used: the operation goes on without, or more slowly.
TEST(MultipathEndTest, PinnedMemoryIsShort) {
  std::mt19937_64 random(TestSeed());
  SplitCase c;
  c.op = {.count = 200'000};
  c.host_slice_bytes = size_t{64} << 10;
  c.slice_bytes = size_t{64} << 10;
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 2; ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, c.op.count, 0, false, false, &random));
  }
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  // Room for none, for two slices, and the driver says no.
  for (const auto& [staging, fails] :
       {std::pair<size_t, bool>{32 << 10, false}, {128 << 10, false}, {1 << 20, true}}) {
    Gpus::Options options = FakeGpuOptions();
    options.staging_bytes = staging;
    const auto gpus = OpenFakeGpus(options);
    SplitOperation running(*gpus, c, inputs, Forced(0.5));
    running.ranks.EnqueueAll();
    if (fails) Fake().Fail("cuMemHostAlloc", 1, cuda::kErrorOutOfMemory);
    running.Start();
    const OpResult result = running.Wait();
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.stats.host_path_bytes, staging == 128 << 10 ? ExpectedHostBytes(c) : 0);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_FALSE(
          FirstDifference(c.op.dtype, running.ranks.Received(rank), expected[rank]).has_value());
    }
  }
}

// What an operation has to wait for is little, however many ranks there are.
TEST(MultipathEndTest, PinsLittleAtATime) {
  const auto gpus = OpenFakeGpus();
  SplitCase c;
  c.op = {.count = 16384};
  c.gpus = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  const GpuRanks ranks(*gpus, c.op, std::vector<Bytes>(10, Bytes(c.bytes())), c.gpus, 0);
  for (const size_t slots : {1, 2, 3, 4, 4}) {
    const auto rail = std::make_shared<HostRail>(*gpus, gpus->at(0), c.op, ranks.buffers(), 0,
                                                 c.host_slice_bytes, [](const OpResult&) {});
    EXPECT_TRUE(rail->TakeMemory().ok());
    EXPECT_EQ(rail->warms(), slots < 4);
    EXPECT_EQ(gpus->at(0).frames_out() + gpus->at(1).frames_out(), 10 * slots);
    rail->Cancel(absl::OkStatus(), -1);
  }
}

TEST(MultipathEndTest, ACopyThatFailsFailsTheOperation) {
  for (const unsigned nth : {1U, 2U, 5U, 20U}) {
    const auto gpus = OpenFakeGpus();
    SplitCase c;
    c.op = {.count = 50'000};
    SplitOperation running(*gpus, c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
    running.ranks.EnqueueAll();  // before: these are the ranks' own calls
    Fake().Fail("cuMemcpyAsync", nth, cuda::kErrorOutOfMemory);
    running.Start();
    const OpResult result = running.Wait();
    EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << result.status;
    EXPECT_EQ(running.outcome.calls(), 1);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(running.ranks.order(rank).done->load(), running.ranks.order(rank).value);
      (void)running.ranks.Received(rank);
    }
    for (size_t gpu = 0; gpu < 2; ++gpu) EXPECT_EQ(gpus->at(gpu).frames_out(), 0U);
  }
}

// Last: the context stays broken, and with it what lies in it.
TEST(MultipathEndTest, ZABrokenGpuEndsBothParts) {
  const auto gpus = OpenFakeGpus();
  SplitCase c;
  c.op = {.count = 50'000};
  // One slice over the links, on GPU 0: what the other writes to its memory nobody waits for.
  c.slice_bytes = size_t{1} << 20;
  static auto* const running =
      new SplitOperation(*gpus, c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running->ranks.EnqueueAll();
  running->StartUntilDown();
  // It has a stream for copies up, so that some are enqueued.
  std::promise<bool> made;
  gpus->at(1).Post([&] { made.set_value(gpus->at(1).CopyStream(Gpu::Way::kUp).ok()); });
  ASSERT_TRUE(made.get_future().get());
  Fake().BreakDevice(1, cuda::kErrorIllegalAddress);
  // Nothing goes up any more.
  running->StartChannels(2);
  const OpResult result = running->Wait();
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("CUDA"));
  EXPECT_EQ(running->ranks.order(0).done->load(), running->ranks.order(0).value);
  EXPECT_EQ(running->outcome.calls(), 1);
  running->EndChannels();
  EXPECT_EQ(gpus->at(0).frames_out(), 0U);
  // Nobody gets what the broken one may still write to.
  EXPECT_FALSE(gpus->at(0).TakeSparePinned(c.host_slice_bytes, /*make=*/false).ok());
}

}  // namespace
}  // namespace spccl::runtime
