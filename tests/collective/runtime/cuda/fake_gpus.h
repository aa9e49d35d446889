// The node's GPUs for tests: fake ones, opened as spccld opens its own.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "base/status.h"
#include "collective/runtime/cuda/gpus.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::testing {

// How many there are, the same for the whole process; they can all reach each other but for the
// last two, which cannot.
inline constexpr int kFakeGpus = 4;

inline void SetFakeEnvironment() {
  ::setenv("SPCCL_FAKE_GPUS", std::to_string(kFakeGpus).c_str(), 1);
  ::setenv("SPCCL_FAKE_GPU_NO_PEERS", "2-3", 1);
  ::setenv("SPCCL_FAKE_CUDA_DELAY_US", "20", 0);
  ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", "0", 0);
  // Kernels on the fibre lane for the shortest slices only: here it is about what launches them.
  ::setenv("SPCCL_FAKE_DEVICE_FIBRE_BYTES", "128", 0);
}

inline runtime::Gpus::Options FakeGpuOptions() {
  SetFakeEnvironment();  // before anything loads the driver
  runtime::Gpus::Options options;
  options.driver_library = SPCCL_FAKE_CUDA_LIBRARY;
  options.codec_library = SPCCL_FAKE_DEVICE_LIBRARY;
  options.staging_bytes = size_t{256} << 20;
  return options;
}

inline std::unique_ptr<runtime::Gpus> OpenFakeGpus(
    const runtime::Gpus::Options& options = FakeGpuOptions()) {
  auto gpus = runtime::Gpus::Open(options);
  if (!gpus.ok()) std::fprintf(stderr, "%s\n", gpus.status().ToString().c_str());
  SPCCL_CHECK(gpus.ok());
  return *std::move(gpus);
}

// Open for the whole test program: contexts are dear. Closed after the last test.
inline runtime::Gpus& TheGpus() {
  struct Closer final : ::testing::Environment {
    std::unique_ptr<runtime::Gpus> gpus = OpenFakeGpus();
    void TearDown() override { gpus.reset(); }
  };
  static auto* const closer = static_cast<Closer*>(::testing::AddGlobalTestEnvironment(new Closer));
  return *closer->gpus;
}

// Frames that some task or transport has not given back.
inline size_t FramesOut() {
  size_t out = 0;
  for (size_t gpu = 0; gpu < TheGpus().count(); ++gpu) out += TheGpus().at(gpu).frames_out();
  return out;
}

}  // namespace spccl::testing
