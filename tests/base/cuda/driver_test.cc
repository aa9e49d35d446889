#include "base/cuda/driver.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

// Each runs in a process of its own: what a process has loaded stays loaded.
class DriverDeathTest : public ::testing::Test {
 protected:
  DriverDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST(DriverTest, AMissingLibraryIsNotFound) {
  const auto driver = Driver::Load("/nowhere/libcuda.so.1");
  EXPECT_TRUE(absl::IsNotFound(driver.status())) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("/nowhere/libcuda.so.1"));
}

TEST(DriverTest, ALibraryThatLacksAFunctionIsTooOldAndTheFunctionIsNamed) {
  const auto driver = Driver::Load(SPCCL_OLD_CUDA_LIBRARY);
  EXPECT_TRUE(absl::IsUnimplemented(driver.status())) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()),
              AllOf(HasSubstr("cuDriverGetVersion"), HasSubstr("too old")));
}

TEST(DriverTest, ALibraryOfSomethingElseIsNoDriver) {
  const auto driver = Driver::Load("libm.so.6");
  EXPECT_TRUE(absl::IsNotFound(driver.status())) << driver.status();
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libm.so.6 is no CUDA driver"));
  EXPECT_FALSE(Driver::FoundNoGpu(driver.status()));
}

#ifdef SPCCL_CUDA_STUB
TEST(DriverTest, TheToolkitsStubHasEveryFunctionAndNoGpu) {
  const auto driver = Driver::Load(SPCCL_CUDA_STUB);
  EXPECT_TRUE(absl::IsUnavailable(driver.status())) << driver.status();
}
#endif

// Loads it where there is no GPU, says what comes of that, and ends: with 0 if it says just that.
void LoadWithoutGpus(const char* library) {
  ::setenv("SPCCL_FAKE_GPUS", "0", 1);
  const auto driver = Driver::Load(library);
  std::fprintf(stderr, "%s\n", driver.status().ToString().c_str());
  const bool is_right = absl::IsNotFound(driver.status()) && Driver::FoundNoGpu(driver.status());
  std::_Exit(is_right ? 0 : 1);
}

TEST_F(DriverDeathTest, WithoutGpusNoneAreFoundWhateverTheDriver) {
  EXPECT_EXIT(LoadWithoutGpus(SPCCL_FAKE_CUDA_LIBRARY), ExitedWithCode(0),
              "finds no GPU: cuInit: CUDA_ERROR_NO_DEVICE");
  EXPECT_EXIT(LoadWithoutGpus(SPCCL_OLD_CUDA_LIBRARY), ExitedWithCode(0), "finds no GPU");
}

TEST_F(DriverDeathTest, ADriverThatDoesNotWorkIsUnavailable) {
  const auto load = [] {
    spccl::testing::Fake().Fail("cuInit", 1, kErrorUnknown);
    const auto driver = Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
    std::fprintf(stderr, "%s\n", driver.status().ToString().c_str());
    std::_Exit(absl::IsUnavailable(driver.status()) ? 0 : 1);
  };
  EXPECT_EXIT(load(), ExitedWithCode(0), "cuInit: CUDA_ERROR_UNKNOWN");
}

TEST(DriverTest, FunctionsAreTheLibrarys) {
  const auto driver = Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(driver.ok()) << driver.status();
  int count = 0;
  EXPECT_EQ((*driver)->DeviceGetCount(&count), kSuccess);
  EXPECT_GT(count, 0);
}

TEST(DriverTest, AScopedContextIsCurrentInItsScope) {
  const auto driver = Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(driver.ok()) << driver.status();
  Context context = nullptr, current = nullptr;
  ASSERT_EQ((*driver)->DevicePrimaryCtxRetain(&context, 0), kSuccess);
  {
    const ScopedContext scoped(**driver, context);
    EXPECT_TRUE(scoped.status().ok());
    EXPECT_EQ((*driver)->CtxGetCurrent(&current), kSuccess);
    EXPECT_EQ(current, context);
    const ScopedContext none(**driver, nullptr);
    EXPECT_FALSE(none.status().ok());
  }
  EXPECT_EQ((*driver)->CtxGetCurrent(&current), kSuccess);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ((*driver)->DevicePrimaryCtxRelease(0), kSuccess);
}

TEST(DriverTest, ErrorsBecomeStatuses) {
  const auto loaded = Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Driver& driver = **loaded;
  EXPECT_TRUE(driver.ToStatus(kSuccess, "cuInit").ok());
  const absl::Status memory = driver.ToStatus(kErrorOutOfMemory, "cuMemAlloc");
  EXPECT_TRUE(absl::IsResourceExhausted(memory));
  EXPECT_EQ(memory.message(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_TRUE(absl::IsUnavailable(driver.ToStatus(kErrorIllegalAddress, "x")));
  EXPECT_TRUE(absl::IsUnavailable(driver.ToStatus(kErrorLaunchFailed, "x")));
  EXPECT_TRUE(absl::IsInvalidArgument(driver.ToStatus(kErrorInvalidValue, "x")));
  EXPECT_TRUE(absl::IsNotFound(driver.ToStatus(kErrorNotFound, "x")));
  EXPECT_TRUE(absl::IsInternal(driver.ToStatus(kErrorUnknown, "x")));
  const absl::Status strange = driver.ToStatus(123456, "cuX");
  EXPECT_TRUE(absl::IsInternal(strange));
  EXPECT_THAT(std::string(strange.message()), HasSubstr("123456"));
}

// Loads the fake under the system driver's name, and uses it or not.
void LoadAsTheSystems(bool use) {
  void* const library = ::dlopen(SPCCL_FAKE_CUDA_AS_SYSTEM, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::_Exit(2);
  }
  const auto before = Driver::LoadIfInUse();
  if (use) reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"))(0);
  const auto after = Driver::LoadIfInUse();
  std::_Exit(before == nullptr && (after != nullptr) == use ? 0 : 1);
}

TEST_F(DriverDeathTest, IsInUseOnceTheProgramHasInitialisedIt) {
  EXPECT_EXIT(std::_Exit(Driver::LoadIfInUse() == nullptr ? 0 : 1), ExitedWithCode(0), "");
  EXPECT_EXIT(LoadAsTheSystems(false), ExitedWithCode(0), "");
  EXPECT_EXIT(LoadAsTheSystems(true), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace spccl::cuda
