#include "tests/support/fake_cuda/fake_library.h"

#include <dlfcn.h>

#include <cstdio>

#include "base/status.h"

namespace spccl::testing {
namespace {

FakeCuda LookUp() {
  void* const library = ::dlopen(SPCCL_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  SPCCL_CHECK(library != nullptr);
  const auto look_up = [&](const char* symbol, auto* function) {
    *function =
        reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, symbol));
    SPCCL_CHECK(*function != nullptr);
  };
  FakeCuda fake = {};
  look_up("spcclFakeLaunch", &fake.Launch);
  look_up("spcclFakeReach", &fake.Reach);
  look_up("spcclFakeHere", &fake.Here);
  look_up("spcclFakeKernelDevice", &fake.KernelDevice);
  look_up("spcclFakeFail", &fake.Fail);
  look_up("spcclFakeBreakDevice", &fake.BreakDevice);
  look_up("spcclFakeHostFunctions", &fake.HostFunctions);
  look_up("spcclFakeOneHostFunctionAtATime", &fake.OneHostFunctionAtATime);
  look_up("spcclFakeMisuses", &fake.Misuses);
  look_up("spcclFakeCount", &fake.Count);
  return fake;
}

}  // namespace

const FakeCuda& Fake() {
  static const FakeCuda fake = LookUp();
  return fake;
}

std::shared_ptr<const cuda::Driver> LoadFakeDriver() {
  auto driver = cuda::Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
  if (!driver.ok()) std::fprintf(stderr, "%s\n", driver.status().ToString().c_str());
  SPCCL_CHECK(driver.ok());
  return *std::move(driver);
}

}  // namespace spccl::testing
