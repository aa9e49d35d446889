// Communicators over several nodes on GPU memory: real daemons with GPUs of the fake CUDA, which
// meet over loopback, and real ranks.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {
namespace {

constexpr size_t kCount = 70'001;

std::unique_ptr<SpawnedDaemon> StartNode(bool has_gpus) {
  // No library of that name: frames go through the host.
  std::vector<std::string> flags = {"--peers-listen=127.0.0.1:0", "--gpu-nccl=libno-nccl.so"};
  if (has_gpus) {
    flags.insert(flags.end(), {"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels",
                               SPCCL_FAKE_DEVICE_LIBRARY});
  } else {
    flags.insert(flags.end(), {"--gpu-enabled", "off"});
  }
  return StartServing(flags);
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

class GpuNodesTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ways, GpuNodesTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "HandedOver" : "Staged"; });

TEST_P(GpuNodesTest, TwoRanksOnEachOfTwoNodes) {
  ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
  ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 1);
  const auto first = StartNode(GetParam()), second = StartNode(GetParam());
  FaultJob job({first.get(), first.get(), second.get(), second.get()}, SumAndGather);
  EXPECT_TRUE(AllSucceeded(job.processes().Wait(60'000))) << first->ReadLog() << second->ReadLog();
}

}  // namespace
}  // namespace spccl::testing
