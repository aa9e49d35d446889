// Communicators over several nodes on GPU memory: real daemons with GPUs of the fake CUDA, which
// meet over loopback, and real ranks.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/fault/tool.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 70'001;

// How ranks' memory gets to other nodes: from GPU to GPU, handed over and through the hosts, as one
// of the nodes has no NCCL, or copied.
enum class Way { kNccl, kHost, kStaged };

std::unique_ptr<SpawnedDaemon> StartNode(Way way, bool has_nccl) {
  std::vector<std::string> flags = {"--peers-listen=127.0.0.1:0"};
  if (way == Way::kStaged) {
    flags.insert(flags.end(), {"--gpu-enabled", "off"});
  } else {
    flags.insert(flags.end(), {"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                               SPCCL_FAKE_DEVICE_LIBRARY, "--gpu-nccl",
                               has_nccl ? SPCCL_FAKE_NCCL : "libno-nccl.so"});
  }
  return StartServing(flags);
}

void SetEnvironment() {
  ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
  ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);
  ::setenv("SPCCL_FAKE_NCCL_VIOLATION", "abort", 1);
}

// Few elements are not zero, and not the same on all ranks; small integers, whose sums are exact.
std::vector<float> Values(int rank) {
  std::vector<float> values(kCount);
  std::mt19937 random(static_cast<unsigned>(7 + rank));
  for (size_t i = 0; i < kCount / 20; ++i) {
    values[random() % kCount] = static_cast<float>(random() % 9) - 4;
  }
  return values;
}

int SumAndGather(RankContext& context) {
  int ranks = 0;
  if (spcclCommCount(context.comm, &ranks) != spcclSuccess) return 1;
  const GpuProgram gpu(LoadFakeDriver(), context.rank % 2);
  const cuda::Stream stream = gpu.NewStream();
  const auto as_stream = reinterpret_cast<spcclStream_t>(stream);
  void* const send = gpu.Allocate(kCount * sizeof(float));
  void* const recv = gpu.Allocate(kCount * sizeof(float) * ranks);
  gpu.Upload(Values(context.rank), send, stream);
  std::vector<float> sum(kCount), all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = Values(rank);
    for (size_t i = 0; i < kCount; ++i) sum[i] += values[i];
    all.insert(all.end(), values.begin(), values.end());
  }
  for (int round = 0; round < 3; ++round) {
    if (spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, context.comm, as_stream) !=
            spcclSuccess ||
        gpu.Download<float>(recv, kCount, stream) != sum) {
      context.report(std::string("all-reduce: ") + spcclGetLastError(context.comm));
      return 2;
    }
    if (spcclAllGather(send, recv, kCount, spcclFloat32, context.comm, as_stream) != spcclSuccess ||
        gpu.Download<float>(recv, all.size(), stream) != all) {
      context.report(std::string("all-gather: ") + spcclGetLastError(context.comm));
      return 3;
    }
  }
  spcclResult_t health = spcclInternalError;
  (void)spcclCommGetAsyncError(context.comm, &health);
  return health == spcclSuccess && spcclCommDestroy(context.comm) == spcclSuccess ? 0 : 4;
}

std::string NameOf(Way way) {
  if (way == Way::kNccl) return "Nccl";
  return way == Way::kHost ? "Host" : "Staged";
}

class GpuNodesTest : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, GpuNodesTest,
                         ::testing::Values(Way::kNccl, Way::kHost, Way::kStaged),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(GpuNodesTest, TwoRanksOnEachOfTwoNodes) {
  SetEnvironment();
  const auto first = StartNode(GetParam(), true);
  const auto second = StartNode(GetParam(), GetParam() == Way::kNccl);
  FaultJob job({first.get(), first.get(), second.get(), second.get()}, SumAndGather);
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(60'000))) << first->ReadLog() << second->ReadLog();
  for (const auto* daemon : {first.get(), second.get()}) {
    EXPECT_EQ(daemon->ReadLog().find("GPUs are connected") != std::string::npos,
              GetParam() == Way::kNccl)
        << daemon->ReadLog();
  }
}

// What an operator sees of it.
TEST_P(GpuNodesTest, StatusAndEventsSayWhichWayFramesGo) {
  SetEnvironment();
  const auto first = StartNode(GetParam(), true);
  const auto second = StartNode(GetParam(), GetParam() == Way::kNccl);
  FaultJob job({first.get(), second.get()}, SumAndGather);
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(60'000)));
  const std::string status = RunTool(*second, "status").output;
  const std::string events = RunTool(*first, "events").output;
  switch (GetParam()) {
    case Way::kNccl:
      EXPECT_THAT(status, HasSubstr(", NCCL 2.28.9 ("));
      EXPECT_THAT(events, HasSubstr("frames between GPUs go by NCCL"));
      break;
    case Way::kHost:
      EXPECT_THAT(status, HasSubstr("between nodes through the hosts: "));
      EXPECT_THAT(events, HasSubstr("frames between GPUs go through the hosts: on "));
      EXPECT_THAT(events, HasSubstr("libno-nccl.so"));
      break;
    case Way::kStaged:
      EXPECT_EQ(events.find("frames between GPUs"), std::string::npos) << events;
      break;
  }
}

// Waits for the stream, and reports what the communicator then says.
int SumOnce(RankContext& context) {
  const GpuProgram gpu(LoadFakeDriver(), context.rank % 2);
  const cuda::Stream stream = gpu.NewStream();
  void* const data = gpu.Allocate(kCount * sizeof(float));
  gpu.Upload(std::vector<float>(kCount, 1), data, stream);
  const auto sum = [&] {
    return spcclAllReduce(data, data, kCount, spcclFloat32, spcclAvg, context.comm,
                          reinterpret_cast<spcclStream_t>(stream));
  };
  if (sum() != spcclSuccess) return 1;
  gpu.Synchronize(stream);
  context.report("summed;");
  AwaitStop(context.stop);
  // Rank 2 never calls.
  if (context.rank != 2 && sum() != spcclSuccess) return 2;
  context.report("called;");
  if (context.rank == 2) {
    for (;;) ::pause();
  }
  gpu.Synchronize(stream);
  spcclResult_t health = spcclSuccess;
  (void)spcclCommGetAsyncError(context.comm, &health);
  ReportResult(context, health);
  return 0;
}

// Rank 1's is in the host's memory: each says how it is with the other's.
int SumOnOne(RankContext& context) {
  const GpuProgram gpu(LoadFakeDriver(), 0);
  const cuda::Stream stream = gpu.NewStream();
  std::vector<float> host(kCount, 1);
  void* const data = context.rank == 0 ? gpu.Allocate(kCount * sizeof(float)) : host.data();
  const spcclResult_t called =
      spcclAllReduce(data, data, kCount, spcclFloat32, spcclSum, context.comm,
                     context.rank == 0 ? reinterpret_cast<spcclStream_t>(stream) : nullptr);
  if (context.rank == 0) gpu.Synchronize(stream);
  spcclResult_t health = called;
  if (called == spcclSuccess) (void)spcclCommGetAsyncError(context.comm, &health);
  ReportResult(context, health);
  return 0;
}

TEST(GpuNodesMixedTest, GpusOnOneNodeAndHostMemoryOnAnotherIsAnError) {
  SetEnvironment();
  for (const bool has_nccl : {true, false}) {
    const auto first = StartNode(Way::kNccl, has_nccl), second = StartNode(Way::kNccl, true);
    FaultJob job({first.get(), second.get()}, SumOnOne);
    const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
    for (const int rank : {0, 1}) {
      const Told told = ParseResult(ends[rank].output);
      EXPECT_EQ(told.result, spcclInvalidUsage) << ends[rank].output;
      EXPECT_THAT(told.text, HasSubstr("ranks disagree")) << rank;
      EXPECT_EQ(told.text.find(", on GPUs") != std::string::npos, has_nccl) << told.text;
      EXPECT_THAT(told.text, HasSubstr("(plans differ: GPUs, copies or CPUs?)"));
    }
  }
}

TEST(GpuNodesDeathTest, ANodeThatDiesIsNamedAndTheOthersGoOn) {
  SetEnvironment();
  const auto first = StartNode(Way::kNccl, true), second = StartNode(Way::kNccl, true),
             third = StartNode(Way::kNccl, true);
  {
    FaultJob job({first.get(), second.get(), third.get()}, SumOnce);
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(job.processes().AwaitReport(rank, "summed;", kPatienceMs)) << first->ReadLog();
    }
    job.Stop();
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(job.processes().AwaitReport(rank, "called;", kPatienceMs)) << rank;
    }
    third->Signal(SIGKILL);
    job.processes().Kill(2, SIGKILL);
    const std::vector<ProcessEnd> ends = job.processes().Wait(kPatienceMs);
    for (const int rank : {0, 1}) {
      const Told told = ParseResult(ends[rank].output);
      EXPECT_EQ(told.result, spcclRemoteError) << ends[rank].output;
      EXPECT_THAT(told.text, HasSubstr("rank 2 (pid "));
    }
  }
  // The two that are left make another world.
  FaultJob next({first.get(), first.get(), second.get()}, SumAndGather);
  EXPECT_TRUE(AllSucceeded(next.processes().Wait(60'000))) << first->ReadLog() << second->ReadLog();
}

}  // namespace
}  // namespace spccl::testing
