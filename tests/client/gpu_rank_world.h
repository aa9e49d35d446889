// What the tests of the library and the real daemon on GPU memory of the fake CUDA share: ranks as
// processes, handed over or copied.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gtest/gtest.h"
#include "tests/client/rank_world.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {

using Environment = std::map<std::string, std::string>;
using Report = MultiProcess::Report;

// Of the daemon and the ranks. As on a GPU, the host finds no way into device memory.
inline const Environment kFakeCuda = {{"SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY},
                                      {"SPCCL_FAKE_CUDA_HOST_ACCESS", "0"}};

inline bool RunOnGpus(int ranks, const RankBody& body, const std::vector<std::string>& flags) {
  for (const auto& [name, value] : kFakeCuda) ::setenv(name.c_str(), value.c_str(), 1);
  return RunRanks(ranks, body, {}, flags);
}

inline spcclStream_t AsStream(cuda::Stream stream) {
  return reinterpret_cast<spcclStream_t>(stream);
}

inline std::vector<float> Filled(size_t count, float value) {
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

// Whether the daemon has the GPUs too, or all goes through copies.
enum class Way { kHandedOver, kStaged };

inline std::vector<std::string> FlagsOf(Way way) {
  if (way == Way::kStaged) return {"--gpu-enabled", "off"};
  return {"--gpu-driver", SPCCL_FAKE_CUDA_LIBRARY, "--gpu-kernels", SPCCL_FAKE_DEVICE_LIBRARY};
}

// Whether a memfd of this name is mapped: those for copies are.
inline bool Maps(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:" + name) != std::string::npos) return true;
  }
  return false;
}

class GpuEndToEndTest : public ::testing::TestWithParam<Way> {
 protected:
  // Also checks in each rank that the way is the one that was meant.
  static bool Run(int ranks, const RankBody& body) {
    const bool stages = GetParam() == Way::kStaged;
    const auto checked = [&](const RankWorld& world, const Report& report) {
      if (const int failed = body(world, report); failed != 0) return failed;
      if (Maps("spccl-memory") == stages) return 0;
      report(stages ? "nothing was copied\n" : "something was copied\n");
      return 253;
    };
    return RunOnGpus(ranks, checked, FlagsOf(GetParam()));
  }
};

inline std::string NameOfWay(const ::testing::TestParamInfo<Way>& info) {
  return info.param == Way::kStaged ? "Staged" : "HandedOver";
}

}  // namespace spccl::testing
