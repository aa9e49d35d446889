// Where the fake CUDA is, and what it has for tests beyond the driver's functions (fake_cuda.h).
//
// Tests link spccl::fake_cuda_loader, whose macro SPCCL_FAKE_CUDA_LIBRARY is the driver's path, and
// SPCCL_FAKE_DEVICE_LIBRARY that of the kernels. What a process sets in its environment before it
// first loads the driver counts.
#pragma once

#include <memory>

#include "base/cuda/driver.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace spccl::testing {

// The functions of the one fake driver that the process has loaded, or loads now.
struct FakeCuda {
  decltype(&spcclFakeLaunch) Launch;
  decltype(&spcclFakeReach) Reach;
  decltype(&spcclFakeHere) Here;
  decltype(&spcclFakeKernelDevice) KernelDevice;
  decltype(&spcclFakeFail) Fail;
  decltype(&spcclFakeBreakDevice) BreakDevice;
  decltype(&spcclFakeOneHostFunctionAtATime) OneHostFunctionAtATime;
  decltype(&spcclFakeHostFunctions) HostFunctions;
  decltype(&spcclFakeMisuses) Misuses;
  decltype(&spcclFakeCount) Count;
};
const FakeCuda& Fake();

// The driver, loaded through base/cuda/driver.h. Ends the process if that fails.
std::shared_ptr<const cuda::Driver> LoadFakeDriver();

}  // namespace spccl::testing
