// GPUs as the daemon opens them: what is not there, what breaks, what is given back.
#include "collective/runtime/cuda/gpus.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collective/runtime/cuda/hardware_queues.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collective/runtime/cuda/fake_gpus.h"
#include "tests/collective/runtime/cuda/gpu_ranks.h"
#include "tests/collective/runtime/cuda/outcome.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::runtime {
namespace {

using spccl::testing::AwaitRelease;
using spccl::testing::Bytes;
using spccl::testing::Fake;
using spccl::testing::FakeGpuOptions;
using spccl::testing::GpuRanks;
using spccl::testing::kFakeGpus;
using spccl::testing::OpenFakeGpus;
using spccl::testing::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

spcclFakeHoldings Holdings() {
  spcclFakeHoldings holdings = {};
  Fake().Count(&holdings);
  return holdings;
}

// What a GPU's thread says.
template <class T>
T Ask(Gpu& gpu, const std::function<T()>& question) {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<T> answer;
  gpu.Post([&] {
    T given = question();
    const std::lock_guard lock(mutex);
    answer = std::move(given);
    came.notify_all();
  });
  std::unique_lock lock(mutex);
  SPCCL_CHECK(came.wait_for(lock, std::chrono::minutes(1), [&] { return answer.has_value(); }));
  return *std::move(answer);
}

// Only where there is no driver nothing is found: the usual case, of which nobody need be told.
TEST(GpusTest, SaysWhatIsMissing) {
  Gpus::Options options = FakeGpuOptions();
  options.driver_library = "/nowhere/libcuda.so.1";
  EXPECT_EQ(Gpus::Open(options).status().code(), absl::StatusCode::kNotFound);
  options = FakeGpuOptions();
  options.codec_library = "/nowhere/libspccl_device.so";
  absl::Status status = Gpus::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no /nowhere/libspccl_device.so"));
  options.codec_library = SPCCL_FAKE_CUDA_LIBRARY;  // a library, but not that
  EXPECT_EQ(Gpus::Open(options).status().code(), absl::StatusCode::kFailedPrecondition);
  options.codec_library = "/proc/self/cmdline";  // there, and no library
  status = Gpus::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cmdline"), Not(HasSubstr("there is no "))));
}

TEST(GpusTest, WhereNoGpuWorksTheyAreUnavailable) {
  OpenFakeGpus().reset();  // the driver is there
  for (int gpu = 1; gpu <= kFakeGpus; ++gpu) {
    Fake().Fail("cuDeviceGetUuid_v2", gpu, cuda::kErrorInvalidDevice);
  }
  const absl::Status status = Gpus::Open(FakeGpuOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_INVALID_DEVICE"));
}

TEST(GpusTest, OpensAllAndGivesAllBack) {
  const spcclFakeHoldings before = Holdings();
  {
    const auto gpus = OpenFakeGpus();
    ASSERT_EQ(gpus->count(), static_cast<size_t>(kFakeGpus));
    EXPECT_TRUE(gpus->reach(0, 1));
    EXPECT_FALSE(gpus->reach(2, 3));
    EXPECT_FALSE(gpus->reach(3, 2));
    for (size_t gpu = 0; gpu < gpus->count(); ++gpu) {
      EXPECT_EQ(gpus->at(gpu).index(), static_cast<int>(gpu));
      EXPECT_FALSE(gpus->at(gpu).name().empty());
      EXPECT_EQ(gpus->Find(gpus->at(gpu).uuid()), &gpus->at(gpu));
      const auto frame = gpus->at(gpu).TakeFrame(5000);
      ASSERT_TRUE(frame.ok()) << frame.status();
      EXPECT_EQ(frame->gpu(), static_cast<int>(gpu));
      EXPECT_EQ(gpus->at(gpu).frames_out(), 1U);
      EXPECT_TRUE(gpus->at(gpu).TakePinned(100).ok());
      EXPECT_TRUE(Ask<bool>(gpus->at(gpu), [&at = gpus->at(gpu)] {
        const auto down = at.CopyStream(Gpu::Way::kDown), up = at.CopyStream(Gpu::Way::kUp);
        return down.ok() && up.ok() && *down != *up && *at.CopyStream(Gpu::Way::kUp) == *up;
      }));
    }
    EXPECT_EQ(gpus->Find(cuda::Uuid{}), nullptr);
  }
  const spcclFakeHoldings after = Holdings();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.host, before.host);
  EXPECT_EQ(after.streams, before.streams);
}

// One that waits holds up the others of its queue.
TEST(GpusTest, AllStreamsOfAGpuHaveQueuesOfTheirOwn) {
  const auto gpus = OpenFakeGpus();
  const uint64_t for_work = Holdings().streams;
  Gpu& gpu = gpus->at(0);
  std::vector<void*> waiting, made;
  const auto take_all = [&] {
    EXPECT_TRUE(gpu.CopyStream(Gpu::Way::kDown).ok() && gpu.CopyStream(Gpu::Way::kUp).ok());
    for (size_t i = 0; i < kRunningWorlds; ++i) made.push_back(*gpu.MakeStream());
    while (void* const stream = gpu.TakeWaitStream()) waiting.push_back(stream);
    return Holdings().streams;
  };
  const uint64_t streams = Ask<uint64_t>(gpu, take_all) - for_work + kWorkStreams;
  EXPECT_GE(waiting.size(), 8U);
  EXPECT_LE(streams + kOwnStreamsOfNccl, 32U);
  (void)Ask<int>(gpu, [&] {
    for (void* const stream : made) gpu.EndStream(stream);
    for (void* const stream : waiting) gpu.GiveWaitStream(stream);
    return 0;
  });
}

TEST(GpusTest, AGpuThatCannotBeUsedIsLeftOut) {
  OpenFakeGpus().reset();  // the driver is there
  Fake().Fail("cuDevicePrimaryCtxRetain", 1, cuda::kErrorOutOfMemory);
  const auto gpus = OpenFakeGpus();
  EXPECT_EQ(gpus->count(), static_cast<size_t>(kFakeGpus - 1));
  EXPECT_EQ(gpus->at(0).index(), 0);
  ASSERT_EQ(gpus->refused().size(), 1u);
  EXPECT_TRUE(gpus->refused()[0].starts_with("GPU 0: cuDevicePrimaryCtxRetain: "));
}

// For who can do without: nothing is freed for it, nor more than half taken.
TEST(GpusTest, SparePinnedMemoryLeavesHalfAndFreesNothing) {
  Gpus::Options options = FakeGpuOptions();
  options.staging_bytes = 1 << 20;
  const auto gpus = OpenFakeGpus(options);
  Gpu& gpu = gpus->at(0);
  EXPECT_EQ(gpu.TakeSparePinned(1 << 18, /*make=*/false).status().code(),
            absl::StatusCode::kResourceExhausted);
  std::vector<transport::Frame> frames;
  for (int i = 0; i < 2; ++i) {
    auto frame = gpu.TakeSparePinned(1 << 18, /*make=*/true);
    ASSERT_TRUE(frame.ok()) << frame.status();
    frames.push_back(*std::move(frame));
  }
  EXPECT_FALSE(gpu.TakeSparePinned(1024, /*make=*/true).ok());
  EXPECT_TRUE(gpu.TakePinned(1 << 18).ok());
  frames.clear();
  EXPECT_TRUE(gpu.TakeSparePinned(1 << 18, /*make=*/false).ok());
  // To make it, something that is kept would have to be freed.
  const uint64_t held = Holdings().host;
  EXPECT_FALSE(gpu.TakeSparePinned(1 << 19, /*make=*/true).ok());
  EXPECT_EQ(Holdings().host, held);
  EXPECT_EQ(gpu.frames_out(), 0U);
}

TEST(GpusTest, StagingIsBoundedAndKept) {
  Gpus::Options options = FakeGpuOptions();
  options.staging_bytes = 1 << 20;
  const auto gpus = OpenFakeGpus(options);
  Gpu& gpu = gpus->at(0);
  std::vector<transport::Frame> frames;
  for (int i = 0; i < 4; ++i) {
    auto frame = gpu.TakeFrame(200'000);
    ASSERT_TRUE(frame.ok()) << frame.status();
    frames.push_back(*std::move(frame));
  }
  EXPECT_EQ(gpu.TakeFrame(1).status().code(), absl::StatusCode::kResourceExhausted);
  std::byte* const last = frames.back().data();
  frames.pop_back();
  // A larger one serves, rather than that anything is freed.
  EXPECT_EQ(gpu.TakeFrame(1)->data(), last);
  frames.clear();
  EXPECT_EQ(gpu.frames_out(), 0U);
  // What is kept makes room in the end, but not while that could wait for a rank.
  gpu.CountRankWaits(1);
  EXPECT_EQ(gpu.TakeFrame(1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
  gpu.CountRankWaits(-1);
  EXPECT_TRUE(gpu.TakeFrame(1 << 20).ok());
}

TEST(GpusTest, FramesHaveOwnersAndHeadersOfTheirOwn) {
  const auto gpus = OpenFakeGpus();
  auto frame = gpus->at(1).TakeFrame(100);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_NE(frame->header(), frame->data());
  *static_cast<uint32_t*>(frame->header()) = 17;  // the host's
  EXPECT_TRUE(frame->unique());
  {
    const transport::Frame other = frame->Share();
    EXPECT_FALSE(frame->unique());
    EXPECT_EQ(other.gpu(), 1);
  }
  EXPECT_TRUE(frame->unique());
}

struct Running {
  explicit Running(Gpus& gpus, policy::Algorithm algorithm = policy::Algorithm::kLocal)
      : op{.count = 50'000},
        ranks(gpus, op, std::vector<Bytes>(2, Bytes(4 * op.count)), {0, 1}, 0) {
    auto made = MakeGpuTask(gpus, op, ranks.buffers(), {.algorithm = algorithm},
                            {.slice_bytes = 4096}, outcome.Fn());
    SPCCL_CHECK(made.ok());
    task = *std::move(made);
  }

  OpDesc op;
  GpuRanks ranks;
  Outcome outcome;
  std::shared_ptr<Task> task;
};

// A call of the driver that an operation makes fails, early or late: the operation ends, with the
// reason, and nothing is kept.
TEST(GpusTest, ACallThatFailsFailsTheOperation) {
  const std::pair<const char*, unsigned> failures[] = {{"cuMemcpyAsync", 1},
                                                       {"cuMemcpyAsync", 2},
                                                       {"cuMemcpyAsync", 7},
                                                       {"cuMemAlloc_v2", 1},
                                                       {"cuMemHostAlloc", 1}};
  for (const auto& [symbol, nth] : failures) {
    const auto gpus = OpenFakeGpus();
    Running running(*gpus, policy::Algorithm::kRing);
    running.ranks.EnqueueAll();  // before: these are the ranks' own calls
    Fake().Fail(symbol, nth, cuda::kErrorOutOfMemory);
    running.task->Start();
    const auto result = running.outcome.Wait();
    ASSERT_TRUE(result.has_value()) << symbol;
    EXPECT_EQ(result->status.code(), absl::StatusCode::kResourceExhausted) << result->status;
    EXPECT_EQ(running.outcome.calls(), 1);
    AwaitRelease(*gpus);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(running.ranks.order(rank).done->load(), running.ranks.order(rank).value);
    }
    for (size_t gpu = 0; gpu < 2; ++gpu) EXPECT_EQ(gpus->at(gpu).frames_out(), 0U);
  }
}

// Holds a stream up. It outlives the GPU.
class Blocker {
 public:
  // On the GPU's issuing thread.
  void Block(void* stream) {
    const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
    EXPECT_EQ(Fake().Launch(static_cast<cuda::Stream>(stream), wait, &ends_, nullptr),
              cuda::kSuccess);
  }
  void End() {
    ends_ = true;
    ends_.notify_all();
  }

 private:
  std::atomic<bool> ends_ = false;
};

Gpus::Options StuckAtOnce() {
  Gpus::Options options = FakeGpuOptions();
  options.stuck_after_ns = 1;
  return options;
}

// What is said when a blocked stream of the first GPU is taken for stuck.
absl::Status AwaitStuck(Gpus& gpus, const std::function<bool()>& waits) {
  Gpu& gpu = gpus.at(0);
  Blocker blocker;
  std::promise<absl::Status> stuck;
  void* stream = nullptr;
  gpu.Post([&] {
    stream = gpu.TakeWaitStream();
    blocker.Block(stream);
    gpu.WhenEnded(stream, waits, [&](const absl::Status& status) { stuck.set_value(status); });
  });
  std::future<absl::Status> said = stuck.get_future();
  SPCCL_CHECK(said.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  blocker.End();
  // The driver may call back late: nothing is there for it, and nothing breaks.
  (void)Ask<int>(
      gpu, [&] { return gpus.driver()->StreamSynchronize(static_cast<cuda::Stream>(stream)); });
  return said.get();
}

// Work that does not end takes its GPU out of use.
TEST(GpusTest, AStuckGpuIsTakenForBroken) {
  const auto gpus = OpenFakeGpus(StuckAtOnce());
  const absl::Status stuck = AwaitStuck(*gpus, nullptr);
  EXPECT_EQ(stuck.code(), absl::StatusCode::kDeadlineExceeded) << stuck;
  EXPECT_THAT(std::string(stuck.message()), HasSubstr("GPU 0"));
  EXPECT_EQ(gpus->at(0).status(), stuck);
}

// Not a stream that may wait, but from when on it need not.
TEST(GpusTest, AStreamThatNeedNotWaitAnyMoreIsTakenForStuck) {
  const auto gpus = OpenFakeGpus(StuckAtOnce());
  const std::vector<bool> answers = {true, true, false, true};
  size_t asked = 0;
  const absl::Status stuck = AwaitStuck(*gpus, [&] {
    EXPECT_TRUE(gpus->at(0).status().ok()) << asked;
    const size_t look = asked++;
    return look < answers.size() && answers[look];
  });
  EXPECT_EQ(stuck.code(), absl::StatusCode::kDeadlineExceeded) << stuck;
  // At the first look of the last two its time begins.
  EXPECT_EQ(asked, answers.size() + 2);
}

// It sticks while its stream waits for ranks, and they come, or are let through.
TEST(GpusTest, AGpuThatSticksBeforeItsRanksComeFailsTheOperation) {
  for (const bool cancels : {false, true}) {
    Blocker blocker;
    const auto gpus = OpenFakeGpus(StuckAtOnce());
    Gpu& gpu = gpus->at(0);
    Running running(*gpus);
    (void)Ask<int>(gpu, [&] {
      void* const stream = gpu.TakeWaitStream();
      blocker.Block(stream);
      gpu.GiveWaitStream(stream);  // who takes one next has it
      return 0;
    });
    running.task->Start();
    (void)Ask<int>(gpu, [] { return 0; });
    if (cancels) {
      running.task->Cancel(absl::AbortedError("enough"), 1);
    } else {
      running.ranks.EnqueueAll();
    }
    const auto result = running.outcome.Wait();
    AwaitRelease(*gpus);
    blocker.End();
    ASSERT_TRUE(result.has_value());
    EXPECT_FALSE(result->status.ok());
    EXPECT_EQ(gpu.status().code(), absl::StatusCode::kDeadlineExceeded) << gpu.status();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(running.ranks.order(rank).done->load(), running.ranks.order(rank).value);
    }
  }
}

// Last: the context stays broken, and with it what lies in it.
TEST(GpusTest, ZABrokenGpuFailsWhatRunsAndWhatComes) {
  auto gpus = OpenFakeGpus();
  static auto* const waiting = new Running(*gpus);  // no rank is ready
  static auto* const later = new Running(*gpus);
  static auto* const busy = new Running(*gpus, policy::Algorithm::kRing);
  busy->ranks.EnqueueAll();
  waiting->task->Start();
  (void)Ask<int>(gpus->at(0), [] { return 0; });
  EXPECT_EQ(waiting->outcome.calls(), 0);
  busy->task->Start();
  (void)Ask<int>(gpus->at(0), [] { return 0; });
  Fake().BreakDevice(0, cuda::kErrorIllegalAddress);
  // Wherever it was.
  const auto broken = busy->outcome.Wait();
  ASSERT_TRUE(broken.has_value());
  AwaitRelease(*gpus);
  EXPECT_EQ(busy->ranks.order(1).done->load(), busy->ranks.order(1).value);
  const auto result = waiting->outcome.Wait();
  ASSERT_TRUE(result.has_value());
  AwaitRelease(*gpus);
  EXPECT_FALSE(result->status.ok());
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("GPU 0"));
  EXPECT_EQ(waiting->ranks.order(0).done->load(), waiting->ranks.order(0).value);
  EXPECT_FALSE(gpus->at(0).status().ok());
  EXPECT_TRUE(gpus->at(1).status().ok());
  later->task->Start();
  const auto refused = later->outcome.Wait();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, gpus->at(0).status());
}

}  // namespace
}  // namespace spccl::runtime
