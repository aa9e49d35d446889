// The library and the real daemon on GPU memory of the fake CUDA: ranks as processes.
#include <map>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/rank_world.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {
namespace {

using Environment = std::map<std::string, std::string>;
using Report = MultiProcess::Report;

const Environment kFakeCuda = {{"SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY}};

spcclStream_t AsStream(cuda::Stream stream) {
  return reinterpret_cast<spcclStream_t>(stream);
}

std::vector<float> Filled(size_t count, float value) {
  return std::vector<float>(count, value);
}

// 0, or the line where it went wrong.
#define MUST(condition)                                                            \
  do {                                                                             \
    if (!(condition)) {                                                            \
      report(std::string(#condition ": ") + spcclGetLastError(world.comm) + "\n"); \
      return __LINE__ % 250 + 1;                                                   \
    }                                                                              \
  } while (false)

// Without GPUs in the daemon all goes through copies.
const std::vector<std::string> kNoGpus = {"--gpu-enabled", "off"};

int SumOnce(const RankWorld& world, const Report& report) {
  const GpuProgram gpu(LoadFakeDriver());
  const cuda::Stream stream = gpu.NewStream();
  constexpr size_t kCount = 100'000;
  void* const send = gpu.Allocate(kCount * sizeof(float));
  void* const recv = gpu.Allocate(kCount * sizeof(float));
  gpu.Upload(Filled(kCount, static_cast<float>(world.rank + 1)), send, stream);
  for (int round = 0; round < 3; ++round) {
    MUST(spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, world.comm, AsStream(stream)) ==
         spcclSuccess);
    const float all = static_cast<float>(world.ranks * (world.ranks + 1)) / 2;
    MUST(gpu.Download<float>(recv, kCount, stream) == Filled(kCount, all));
  }
  spcclResult_t health;
  MUST(spcclCommGetAsyncError(world.comm, &health) == spcclSuccess);
  MUST(health == spcclSuccess);
  return 0;
}

TEST(GpuStagedTest, ASumOnDeviceMemory) {
  EXPECT_TRUE(RunRanks(2, SumOnce, kFakeCuda, kNoGpus));
}

}  // namespace
}  // namespace spccl::testing
