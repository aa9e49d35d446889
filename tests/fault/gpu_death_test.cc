// Ranks on GPU memory, and the daemon, die: nobody's stream waits for ever, whoever lives is told
// by name and in time, and nothing of the dead stays behind. On the fake CUDA.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

// kSplit: a part of each operation goes over the host.
enum class Way { kHandedOver, kSplit, kStaged };

constexpr size_t kCount = 1'000'000;  // a slice for the host, and a bit

// The daemon and the ranks. As on a GPU, the host finds no way into device memory.
void UseFakeCuda() {
  ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
  ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);
}

// A rank's part: memory of ones on a GPU, and a stream.
struct RankGpu {
  explicit RankGpu(int rank) : gpu(LoadFakeDriver(), rank % 2), stream(gpu.NewStream()) {
    data = gpu.Allocate(kCount * sizeof(float));
    gpu.Upload(std::vector<float>(kCount, 1), data, stream);
  }
  spcclResult_t Average(spcclComm_t comm) const {
    return spcclAllReduce(data, data, kCount, spcclFloat32, spcclAvg, comm,
                          reinterpret_cast<spcclStream_t>(stream));
  }
  bool HoldsOnes() const {
    return gpu.Download<float>(data, kCount, stream) == std::vector<float>(kCount, 1);
  }
  // What is called on the stream from now on waits for ever.
  void Block() const {
    static auto* const word = new uint32_t(0);
    const cuda::Driver& driver = gpu.driver();
    gpu.Must(driver.MemHostRegister(word, sizeof *word, cuda::kMemHostRegisterDeviceMap));
    cuda::DevicePtr pointer = 0;
    gpu.Must(driver.MemHostGetDevicePointer(&pointer, word, 0));
    gpu.Must(driver.StreamWaitValue32(stream, pointer, 1, cuda::kStreamWaitValueGeq));
  }

  GpuProgram gpu;
  cuda::Stream stream;
  void* data;
};

// Waits for the stream, which must go on, and reports what the communicator then says.
void ReportHealth(RankContext& context, const RankGpu& rank) {
  rank.gpu.Synchronize(rank.stream);
  spcclResult_t health = spcclSuccess;
  (void)spcclCommGetAsyncError(context.comm, &health);
  ReportResult(context, health);
}

class GpuDeathTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    UseFakeCuda();
    if (GetParam() == Way::kStaged) {
      daemon_ = StartServing({"--gpu-enabled", "off"});
    } else {
      daemon_ = StartServing({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                              SPCCL_FAKE_DEVICE_LIBRARY, "--gpu-multipath",
                              GetParam() == Way::kSplit ? "0.5" : "off"});
    }
    // What the daemon keeps for its own use is there after the first job.
    FaultJob first(*daemon_, 3, [](RankContext& context) {
      const RankGpu rank(context.rank);
      const bool well = rank.Average(context.comm) == spcclSuccess && rank.HoldsOnes();
      return well && spcclCommDestroy(context.comm) == spcclSuccess ? 0 : 1;
    });
    ASSERT_TRUE(AllSucceeded(first.processes().Wait(kPatienceMs))) << daemon_->ReadLog();
    // Nothing tells when the last of it has gone: so long it never takes.
    baseline_ = AwaitHoldings(daemon_->pid(), {}, /*timeout_ms=*/300);
  }

  static void ExpectTold(const ProcessEnd& end, int result, const std::string& text,
                         int64_t killed_at_ns) {
    EXPECT_TRUE(end.exited && end.exit_code == 0) << end.output;
    const Told told = ParseResult(end.output);
    EXPECT_EQ(told.result, result) << end.output;
    EXPECT_THAT(told.text, HasSubstr(text));
    EXPECT_LT(told.at_ns - killed_at_ns, kToldWithinNs);
  }

  std::unique_ptr<SpawnedDaemon> daemon_;
  Holdings baseline_;
};

INSTANTIATE_TEST_SUITE_P(Ways, GpuDeathTest,
                         ::testing::Values(Way::kHandedOver, Way::kSplit, Way::kStaged),
                         [](const auto& info) {
                           return info.param == Way::kStaged  ? "Staged"
                                  : info.param == Way::kSplit ? "Split"
                                                              : "HandedOver";
                         });

TEST_P(GpuDeathTest, ARankDiesBeforeItsStreamGetsToTheOperation) {
  constexpr int kKilled = 1;
  FaultJob job(*daemon_, 3, [](RankContext& context) {
    const RankGpu rank(context.rank);
    if (rank.Average(context.comm) != spcclSuccess || !rank.HoldsOnes()) return 1;
    if (context.rank == kKilled) rank.Block();
    if (rank.Average(context.comm) != spcclSuccess) return 2;
    context.report("called;");
    if (context.rank == kKilled) {
      for (;;) ::pause();
    }
    ReportHealth(context, rank);
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "called;", kPatienceMs)) << rank;
  }
  const int64_t killed_at_ns = MonotonicNanos();
  job.processes().Kill(kKilled, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (const int rank : {0, 2}) ExpectTold(ends[rank], spcclRemoteError, "rank 1", killed_at_ns);
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
  // The daemon serves on.
  FaultJob next(*daemon_, 2, [](RankContext& context) {
    const RankGpu rank(context.rank);
    return rank.Average(context.comm) == spcclSuccess && rank.HoldsOnes() ? 0 : 1;
  });
  EXPECT_TRUE(AllSucceeded(next.processes().Wait(kPatienceMs))) << daemon_->ReadLog();
}

TEST_P(GpuDeathTest, ARankDiesBeforeItCalls) {
  constexpr int kKilled = 2;
  FaultJob job(*daemon_, 3, [](RankContext& context) {
    const RankGpu rank(context.rank);
    if (context.rank != kKilled && rank.Average(context.comm) != spcclSuccess) return 1;
    context.report("called;");
    if (context.rank == kKilled) {
      for (;;) ::pause();
    }
    ReportHealth(context, rank);
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "called;", kPatienceMs)) << rank;
  }
  const int64_t killed_at_ns = MonotonicNanos();
  job.processes().Kill(kKilled, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  for (const int rank : {0, 1}) ExpectTold(ends[rank], spcclRemoteError, "rank 2", killed_at_ns);
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
}

TEST(GpuDeadlineTest, AStreamThatDoesNotGetThereIsNamed) {
  UseFakeCuda();
  const auto daemon = StartServing({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                                    SPCCL_FAKE_DEVICE_LIBRARY, "--op-timeout", "300ms"});
  FaultJob job(*daemon, 2, [](RankContext& context) {
    const RankGpu rank(context.rank);
    if (context.rank == 1) rank.Block();
    if (rank.Average(context.comm) != spcclSuccess) return 1;
    if (context.rank == 0) {
      ReportHealth(context, rank);
      context.report("told;");
    } else {
      for (;;) ::pause();
    }
    return 0;
  });
  ASSERT_TRUE(job.processes().AwaitReport(0, "told;", kPatienceMs));
  job.processes().Kill(1, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  const Told told = ParseResult(ends[0].output);
  EXPECT_EQ(told.result, spcclRemoteError) << ends[0].output;
  EXPECT_THAT(told.text, HasSubstr("waited for the CUDA stream of rank 1"));
}

TEST(StuckGpuTest, TheDaemonStopsAllTheSame) {
  UseFakeCuda();
  // The daemon's alone: behind the four by which it tries its two GPUs, its first operation never
  // ends; that its GPU has failed is found at once.
  ::setenv("SPCCL_FAKE_CUDA_STUCK", "5", 1);
  ::setenv("SPCCL_FAKE_CUDA_FAIL", "cuLaunchHostFunc:1:719", 1);
  const auto daemon = StartServing({"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                                    SPCCL_FAKE_DEVICE_LIBRARY, "--gpu-multipath", "off"});
  ::unsetenv("SPCCL_FAKE_CUDA_STUCK");
  ::unsetenv("SPCCL_FAKE_CUDA_FAIL");
  FaultJob job(*daemon, 2, [](RankContext& context) {
    const RankGpu rank(0);  // both on one GPU
    if (rank.Average(context.comm) != spcclSuccess) return 1;
    ReportHealth(context, rank);
    return 0;
  });
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  EXPECT_THAT(ParseResult(ends[0].output).text, HasSubstr("GPU 0")) << ends[0].output;
  daemon->Signal(SIGTERM);
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_TRUE(code.ok()) << code.status() << daemon->ReadLog();
  EXPECT_EQ(*code, 0);
  EXPECT_THAT(daemon->ReadLog(), HasSubstr("GPU 0 (Fake GPU 0) has failed"));
}

TEST_P(GpuDeathTest, StreamsGoOnWhenTheDaemonIsKilled) {
  FaultJob job(*daemon_, 2, [](RankContext& context) {
    const RankGpu rank(context.rank);
    // Rank 1 never calls.
    if (context.rank == 0 && rank.Average(context.comm) != spcclSuccess) return 1;
    context.report("called;");
    if (context.rank == 1) {
      for (;;) ::pause();
    }
    ReportHealth(context, rank);
    // Nothing more is accepted, and nothing hangs.
    return rank.Average(context.comm) == spcclSystemError ? 0 : 2;
  });
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(job.processes().AwaitReport(rank, "called;", kPatienceMs)) << rank;
  }
  const int64_t killed_at_ns = MonotonicNanos();
  daemon_->Signal(SIGKILL);
  ASSERT_TRUE(job.processes().AwaitReport(0, "result ", kPatienceMs));
  job.processes().Kill(1, SIGKILL);
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  ExpectTold(ends[0], spcclSystemError, "spccld", killed_at_ns);
}

TEST_P(GpuDeathTest, AnAbortLetsTheStreamsGoOn) {
  FaultJob job(*daemon_, 2, [](RankContext& context) {
    const RankGpu rank(context.rank);
    if (context.rank == 0) {
      if (rank.Average(context.comm) != spcclSuccess) return 1;
      context.report("called;");
      ReportHealth(context, rank);
      return 0;
    }
    AwaitStop(context.stop);
    return spcclCommAbort(context.comm) == spcclSuccess ? 0 : 3;
  });
  ASSERT_TRUE(job.processes().AwaitReport(0, "called;", kPatienceMs));
  const int64_t aborted_at_ns = MonotonicNanos();
  job.Stop();
  const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
  ExpectTold(ends[0], spcclRemoteError, "rank 1", aborted_at_ns);
  EXPECT_EQ(ends[1].exit_code, 0) << ends[1].output;
  EXPECT_EQ(AwaitHoldings(daemon_->pid(), baseline_), baseline_);
}

}  // namespace
}  // namespace spccl::testing
