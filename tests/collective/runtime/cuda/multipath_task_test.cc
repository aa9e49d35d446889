// All-reduces over fake GPUs of which a part goes over the host: against the oracle, and to the
// bit what they are without.
#include "collective/runtime/cuda/multipath_task.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/channel_threads.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/outcome.h"
#include "tests/support/collective_oracle.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/seed.h"
#include "tests/support/thinning.h"

namespace spccl::runtime {
namespace {

using policy::Codec;
using spccl::testing::Bytes;
using spccl::testing::ChannelThreads;
using spccl::testing::CollectiveOracle;
using spccl::testing::Doing;
using spccl::testing::ExactElements;
using spccl::testing::Fake;
using spccl::testing::FakeGpuOptions;
using spccl::testing::FirstDifference;
using spccl::testing::FramesOut;
using spccl::testing::GpuRanks;
using spccl::testing::OpenFakeGpus;
using spccl::testing::Outcome;
using spccl::testing::RandomElements;
using spccl::testing::TheGpus;
using ::testing::HasSubstr;

struct Case {
  OpDesc op;
  std::vector<int> gpus = {0, 1};  // of each rank
  policy::Settings settings = {.codec = Codec::kDense};
  double share = 0.5;
  size_t slice_bytes = 1024, host_slice_bytes = 1024;
  uint64_t in_place = 0, resets = 0;
  int channels = 2;

  uint32_t ranks() const { return static_cast<uint32_t>(gpus.size()); }
  uint64_t bytes() const { return op.count * SizeOf(op.dtype); }
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(NameOf(c.op.dtype)), " ", std::string(NameOf(c.op.redop)),
                      " count ", c.op.count, " gpus ", absl::StrJoin(c.gpus, ","), " codec ",
                      std::string(policy::NameOf(c.settings.codec)), " share ", c.share,
                      " in place ", c.in_place, " resets ", c.resets, " slice ", c.slice_bytes,
                      " host slice ", c.host_slice_bytes);
}

// One operation that may be split, its ranks and the threads that reduce for it.
class Running {
 public:
  Running(Gpus& gpus, const Case& c, const std::vector<Bytes>& inputs,
          std::shared_ptr<PathRates> paths)
      : ranks(gpus, c.op, inputs, c.gpus, c.in_place, c.resets), channels_(c.channels) {
    auto made = MakeGpuTask(gpus, c.op, ranks.buffers(), c.settings,
                            {.slice_bytes = c.slice_bytes,
                             .paths = std::move(paths),
                             .host_slice_bytes = c.host_slice_bytes},
                            outcome.Fn());
    SPCCL_CHECK(made.ok());
    task = *std::move(made);
  }
  void StartChannels(int channels) { threads_.emplace(task->ForChannels(), channels); }
  void Start() {
    StartChannels(channels_);
    task->Start();
  }
  // With no channel threads yet: when some slice has come down, and lies there.
  void StartUntilDown() {
    struct Down {
      std::mutex mutex;
      std::condition_variable came;
      bool is_down = false;
    };
    const auto down = std::make_shared<Down>();
    task->ForChannels()->SetWaker([down] {
      const std::lock_guard lock(down->mutex);
      down->is_down = true;
      down->came.notify_all();
    });
    task->Start();
    std::unique_lock lock(down->mutex);
    SPCCL_CHECK(down->came.wait_for(lock, std::chrono::minutes(1), [&] { return down->is_down; }));
  }
  OpResult Wait() {
    const std::optional<OpResult> result = outcome.Wait();
    if (result.has_value()) return *result;
    // It would be waited for for ever.
    std::fprintf(stderr, "it does not end: %s\n", Doing(task->Look()).c_str());
    std::abort();
  }

  GpuRanks ranks;
  Outcome outcome;
  std::shared_ptr<Task> task;

 private:
  const int channels_;
  std::optional<ChannelThreads> threads_;
};

std::shared_ptr<PathRates> Forced(double share) {
  return std::make_shared<PathRates>(share);
}

std::vector<Bytes> Run(const Case& c, const std::vector<Bytes>& inputs,
                       std::shared_ptr<PathRates> paths, OpStats* stats) {
  Running running(TheGpus(), c, inputs, std::move(paths));
  running.ranks.EnqueueAll();
  running.Start();
  const OpResult result = running.Wait();
  EXPECT_TRUE(result.status.ok()) << result.status;
  std::vector<Bytes> received;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    received.push_back(running.ranks.Received(rank));
    const GpuOrder& order = running.ranks.order(rank);
    EXPECT_EQ(order.done->load(), (c.resets >> rank & 1) != 0 ? 0 : order.value);
  }
  EXPECT_EQ(running.outcome.calls(), 1);
  EXPECT_EQ(FramesOut(), 0U);
  *stats = result.stats;
  return received;
}

uint64_t ExpectedHostBytes(const Case& c) {
  if (std::set<int>(c.gpus.begin(), c.gpus.end()).size() < 2) return 0;
  return PathRates(c.share).HostBytes({.bytes = c.bytes()}, c.host_slice_bytes, true);
}

// Some values whose sums are exact, and some whose are rounded.
void ExpectRight(const Case& c, std::mt19937_64* random) {
  SCOPED_TRACE(Describe(c));
  OpStats stats;
  std::vector<Bytes> inputs, rounded;
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, c.op.count, 0.1, c.op.redop == RedOp::kProd,
                                   c.op.redop == RedOp::kSum, random));
    rounded.push_back(RandomElements(c.op.dtype, c.op.count, 0.1, false, random));
  }
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  std::vector<Bytes> received = Run(c, inputs, Forced(c.share), &stats);
  EXPECT_EQ(stats.host_path_bytes, ExpectedHostBytes(c));
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const auto difference = FirstDifference(c.op.dtype, received[rank], expected[rank]);
    ASSERT_FALSE(difference.has_value()) << "rank " << rank << " element " << *difference;
  }
  // Wherever a slice went, its bits are the same.
  const std::vector<Bytes> without = Run(c, rounded, nullptr, &stats);
  EXPECT_EQ(stats.host_path_bytes, 0U);
  EXPECT_TRUE(Run(c, rounded, Forced(c.share), &stats) == without) << "other bits";
}

TEST(MultipathTaskTest, EveryTypeAndReductionOverTwoAndFourGpus) {
  std::mt19937_64 random(TestSeed());
  for (const std::vector<int>& gpus : {std::vector<int>{0, 1}, std::vector<int>{3, 0, 2, 1}}) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedOpCount; ++redop) {
        Case c;
        c.op = {.dtype = static_cast<DType>(dtype), .redop = static_cast<RedOp>(redop)};
        c.op.count = 1 + random() % 3000;
        c.gpus = gpus;
        c.in_place = random();
        ExpectRight(c, &random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(MultipathTaskTest, AnyShareAnySizeProperty) {
  std::mt19937_64 random(TestSeed());
  constexpr uint64_t kCounts[] = {0, 1, 16, 17, 63, 255, 1023, 4095, 4096, 4097, 20'001};
  for (int round = 0; round < Thinned(40); ++round) {
    Case c;
    c.op = {.dtype = static_cast<DType>(random() % kDTypeCount),
            .redop = static_cast<RedOp>(random() % kRedOpCount),
            .count = kCounts[random() % std::size(kCounts)]};
    c.gpus.clear();
    for (uint64_t ranks = 2 + random() % 7; ranks > 0; --ranks) {
      c.gpus.push_back(static_cast<int>(random() % 4));
    }
    c.settings.codec = random() % 3 == 0 ? Codec::kAuto : Codec::kDense;
    c.share = static_cast<double>(1 + random() % 99) / 100;
    c.slice_bytes = size_t{64} << (random() % 9);
    c.host_slice_bytes = size_t{64} << (random() % 9);
    // Some are long enough to be cut into pieces.
    if (round % 10 == 0) {
      c.op.count = 1'000'000 + random() % 100;
      c.slice_bytes = c.host_slice_bytes = size_t{1} << 20;
    }
    c.in_place = random();
    c.resets = random() & random();
    c.channels = static_cast<int>(1 + random() % 3);
    ExpectRight(c, &random);
    if (HasFatalFailure()) return;
  }
}

TEST(MultipathTaskTest, OneGpuOtherOperationsAndRingsGoOverTheLinksAlone) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 5000};
  const std::vector<Bytes> inputs(2, Bytes(c.bytes()));
  Case other = c;
  other.gpus = {1, 1};
  EXPECT_EQ(Running(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  other = c;
  other.settings.algorithm = policy::Algorithm::kRing;
  EXPECT_EQ(Running(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  other = c;
  other.op.kind = OpKind::kBroadcast;
  EXPECT_EQ(Running(TheGpus(), other, inputs, Forced(0.5)).task->ForChannels(), nullptr);
  EXPECT_EQ(Running(TheGpus(), c, inputs, Forced(0)).task->ForChannels(), nullptr);
  EXPECT_NE(Running(TheGpus(), c, inputs, Forced(0.5)).task->ForChannels(), nullptr);
}

TEST(MultipathTaskTest, NothingIsTouchedBeforeItsRankIsReady) {
  std::mt19937_64 random(TestSeed());
  Case c;
  c.op = {.count = 5000};
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < 2; ++rank) {
    inputs.push_back(ExactElements(c.op.dtype, c.op.count, 0, false, false, &random));
  }
  const std::vector<Bytes> expected = CollectiveOracle(c.op, inputs);
  Running running(TheGpus(), c, inputs, Forced(0.5));
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

TEST(MultipathTaskTest, ADeadRankHoldsUpNobody) {
  for (const uint64_t resets : {0, 3}) {
    Case c;
    c.op = {.count = 5000};
    c.resets = resets;
    Running running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
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

TEST(MultipathTaskTest, CancelBeforeTheStart) {
  Case c;
  c.op = {.count = 5000};
  Running running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running.ranks.EnqueueAll();
  running.task->Cancel(absl::AbortedError("enough"), 0);
  EXPECT_EQ(running.outcome.calls(), 1);
  running.Start();
  EXPECT_EQ(running.outcome.calls(), 1);
  EXPECT_EQ(running.Wait().status, absl::AbortedError("enough"));
  for (uint32_t rank = 0; rank < 2; ++rank) (void)running.ranks.Received(rank);
}

TEST(MultipathTaskTest, CancelInTheMiddleEndsOnceAndLetsGo) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    Case c;
    c.op = {.count = 16384};
    c.gpus = {0, 1, 0};
    c.share = static_cast<double>(1 + random() % 9) / 10;
    Running running(TheGpus(), c, std::vector<Bytes>(3, Bytes(c.bytes())), Forced(c.share));
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
TEST(MultipathTaskTest, CancelNeedsNoChannelThread) {
  Case c;
  c.op = {.count = 16384};
  Running running(TheGpus(), c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running.ranks.EnqueueAll();
  running.StartUntilDown();
  EXPECT_EQ(running.outcome.calls(), 0);
  EXPECT_THAT(Doing(running.task->Look()), HasSubstr("over the host"));
  running.task->Cancel(absl::AbortedError("enough"), 0);
  EXPECT_EQ(running.Wait().status, absl::AbortedError("enough"));
  EXPECT_EQ(running.task->ForChannels()->RunOne({}), Progress::kDone);
  EXPECT_EQ(FramesOut(), 0U);
  for (uint32_t rank = 0; rank < 2; ++rank) (void)running.ranks.Received(rank);
}

// No pinned memory, or less than would be used: the operation goes on without, or more slowly.
TEST(MultipathTaskTest, PinnedMemoryIsShort) {
  std::mt19937_64 random(TestSeed());
  Case c;
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
    Running running(*gpus, c, inputs, Forced(0.5));
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

TEST(MultipathTaskTest, ACopyThatFailsFailsTheOperation) {
  for (const unsigned nth : {1U, 2U, 5U, 20U}) {
    const auto gpus = OpenFakeGpus();
    Case c;
    c.op = {.count = 50'000};
    Running running(*gpus, c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
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
TEST(MultipathTaskTest, ZABrokenGpuEndsBothParts) {
  static auto* const gpus = OpenFakeGpus().release();
  Case c;
  c.op = {.count = 50'000};
  static auto* const running =
      new Running(*gpus, c, std::vector<Bytes>(2, Bytes(c.bytes())), Forced(0.5));
  running->ranks.EnqueueAll();
  running->StartUntilDown();
  Fake().BreakDevice(1, cuda::kErrorIllegalAddress);
  // Nothing goes up any more.
  running->StartChannels(2);
  const OpResult result = running->Wait();
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("CUDA"));
  EXPECT_EQ(running->ranks.order(0).done->load(), running->ranks.order(0).value);
  EXPECT_EQ(running->outcome.calls(), 1);
  EXPECT_EQ(gpus->at(0).frames_out(), 0U);
}

}  // namespace
}  // namespace spccl::runtime
