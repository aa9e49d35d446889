// Memory's rules, and that breaking a rule is loud. Death tests, and their like, run in processes
// that have not loaded the driver before.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::testing {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): nearly every word is of it

struct OneGpu {
  OneGpu() {
    SPCCL_CHECK(driver->DevicePrimaryCtxRetain(&context, 0) == kSuccess);
    SPCCL_CHECK(driver->CtxPushCurrent(context) == kSuccess);
    SPCCL_CHECK(driver->StreamCreateWithPriority(&stream, 1, 0) == kSuccess);
  }
  DevicePtr Allocate(size_t bytes) const {
    DevicePtr pointer = 0;
    SPCCL_CHECK(driver->MemAlloc(&pointer, bytes) == kSuccess);
    return pointer;
  }
  // What is wrong is found when the stream gets to it.
  void Wait() const { (void)driver->StreamSynchronize(stream); }

  std::shared_ptr<const Driver> driver = LoadFakeDriver();
  Context context = nullptr;
  Stream stream = nullptr;
};

struct Misuse {
  const char* name;
  const char* said;  // in the line on stderr
  std::function<void(const OneGpu& gpu)> broken;
};

std::vector<Misuse> Misuses() {
  return {
      {"FreeTwice", "cuMemFree of what",
       [](const OneGpu& gpu) {
         const DevicePtr pointer = gpu.Allocate(100);
         (void)gpu.driver->MemFree(pointer);
         (void)gpu.driver->MemFree(pointer);
       }},
      {"FreeInside", "cuMemFree of what",
       [](const OneGpu& gpu) { (void)gpu.driver->MemFree(gpu.Allocate(100) + 4); }},
      {"CopyPastTheEnd", "a copy on device 0 touches",
       [](const OneGpu& gpu) {
         const DevicePtr pointer = gpu.Allocate(100);
         (void)gpu.driver->MemsetD8Async(pointer, 1, 100, gpu.stream);
         (void)gpu.driver->MemcpyAsync(pointer + 50, pointer, 60, gpu.stream);
         gpu.Wait();
       }},
      {"MemsetOfFreedMemory", "a memset on device 0 touches",
       [](const OneGpu& gpu) {
         const DevicePtr pointer = gpu.Allocate(100);
         (void)gpu.driver->MemFree(pointer);
         (void)gpu.driver->MemsetD8Async(pointer, 1, 100, gpu.stream);
         gpu.Wait();
       }},
      {"ValueOfPageableMemory", "a stream memory operation on",
       [](const OneGpu& gpu) {
         static uint32_t word = 0;
         (void)gpu.driver->StreamWriteValue32(gpu.stream, reinterpret_cast<DevicePtr>(&word), 1, 0);
       }},
      {"ValueThatIsNotAligned", "not aligned",
       [](const OneGpu& gpu) {
         (void)gpu.driver->StreamWaitValue32(gpu.stream, gpu.Allocate(100) + 2, 1, 0);
       }},
      {"ValueOnADeviceThatDoesNotReachIt", "without access to that peer",
       [](const OneGpu& gpu) {
         Context other;
         Stream stream;
         const DevicePtr pointer = gpu.Allocate(100);
         (void)gpu.driver->DevicePrimaryCtxRetain(&other, 1);
         (void)gpu.driver->CtxPushCurrent(other);
         (void)gpu.driver->StreamCreateWithPriority(&stream, 1, 0);
         (void)gpu.driver->StreamWriteValue32(stream, pointer, 1, 0);
       }},
      {"RegisteredByAnotherContext", "not portable",
       [](const OneGpu& gpu) {
         static uint32_t word = 0;
         Context other;
         Stream stream;
         (void)gpu.driver->MemHostRegister(&word, 4, kMemHostRegisterDeviceMap);
         (void)gpu.driver->DevicePrimaryCtxRetain(&other, 1);
         (void)gpu.driver->CtxPushCurrent(other);
         (void)gpu.driver->StreamCreateWithPriority(&stream, 1, 0);
         (void)gpu.driver->StreamWriteValue32(stream, reinterpret_cast<DevicePtr>(&word), 1, 0);
       }},
      {"DriverCalledByAHostFunction", "cuStreamQuery called by a host function",
       [](const OneGpu& gpu) {
         const auto call = [](void* data) {
           const auto& driver = *static_cast<const Driver*>(data);
           (void)driver.StreamQuery(nullptr);
         };
         (void)gpu.driver->LaunchHostFunc(gpu.stream, call, const_cast<Driver*>(gpu.driver.get()));
         gpu.Wait();
       }},
      {"DestroyedStream", "a stream that does not exist",
       [](const OneGpu& gpu) {
         (void)gpu.driver->StreamDestroy(gpu.stream);
         (void)gpu.driver->StreamQuery(gpu.stream);
       }},
      {"DestroyedEvent", "an event that does not exist",
       [](const OneGpu& gpu) {
         Event event;
         (void)gpu.driver->EventCreate(&event, 2);
         (void)gpu.driver->EventDestroy(event);
         (void)gpu.driver->EventRecord(event, gpu.stream);
       }},
      {"UnregisterTwice", "cuMemHostUnregister of unregistered",
       [](const OneGpu& gpu) {
         static uint32_t word = 0;
         (void)gpu.driver->MemHostRegister(&word, 4, 0);
         (void)gpu.driver->MemHostUnregister(&word);
         (void)gpu.driver->MemHostUnregister(&word);
       }},
      {"MappedWithoutAccess", "cuMemSetAccess has not opened",
       [](const OneGpu& gpu) {
         constexpr size_t kBytes = size_t{2} << 20;
         MemAllocationProp prop = {};
         prop.type = kMemAllocationTypePinned;
         prop.location = {kMemLocationTypeDevice, 0};
         AllocationHandle handle;
         DevicePtr pointer = 0;
         (void)gpu.driver->MemCreate(&handle, kBytes, &prop, 0);
         (void)gpu.driver->MemAddressReserve(&pointer, kBytes, 0, 0, 0);
         (void)gpu.driver->MemMap(pointer, kBytes, 0, handle, 0);
         (void)gpu.driver->MemsetD8Async(pointer, 1, 4, gpu.stream);
         gpu.Wait();
       }},
      {"ClosedTooOften", "cuIpcCloseMemHandle of what",
       [](const OneGpu& gpu) { (void)gpu.driver->IpcCloseMemHandle(gpu.Allocate(10)); }},
  };
}

class MisuseTest : public ::testing::TestWithParam<Misuse> {};

TEST_P(MisuseTest, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const OneGpu gpu;
        GetParam().broken(gpu);
      },
      std::string("fake CUDA: misuse: .*") + GetParam().said);
}

TEST_P(MisuseTest, OrIsAnErrorThatIsCounted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SPCCL_FAKE_CUDA_MISUSE", "error", 1);
        const OneGpu gpu;
        GetParam().broken(gpu);
        std::_Exit(Fake().Misuses() > 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), GetParam().said);
}

INSTANTIATE_TEST_SUITE_P(Rules, MisuseTest, ::testing::ValuesIn(Misuses()),
                         [](const auto& info) { return info.param.name; });

TEST(FaultTest, TheHostHasNoAccessToDeviceMemoryWhereATestWantsItSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [](const char* access) {
    ::setenv("SPCCL_FAKE_CUDA_HOST_ACCESS", access, 1);
    const OneGpu gpu;
    const DevicePtr pointer = gpu.Allocate(100);
    SPCCL_CHECK(gpu.driver->MemsetD8Async(pointer, 7, 100, gpu.stream) == kSuccess);
    SPCCL_CHECK(gpu.driver->StreamSynchronize(gpu.stream) == kSuccess);
    SPCCL_CHECK(*static_cast<const char*>(Fake().Here(pointer + 99)) == 7);
    std::_Exit(*reinterpret_cast<const volatile char*>(pointer));
  };
  EXPECT_EXIT(touch("1"), ::testing::ExitedWithCode(7), "");
  EXPECT_DEATH(touch("0"), "");
}

TEST(FaultTest, ADriverCannotBeUsedInAForkedProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use = [] {
    const OneGpu gpu;
    if (const pid_t child = ::fork(); child != 0) {
      int status = 0;
      ::waitpid(child, &status, 0);
      std::_Exit(WIFSIGNALED(status) ? 3 : 4);
    }
    DevicePtr pointer;
    (void)gpu.driver->MemAlloc(&pointer, 1);
    std::_Exit(0);
  };
  EXPECT_EXIT(use(), ::testing::ExitedWithCode(3), "forked after cuInit");
}

TEST(FaultTest, KernelsTouchOnlyWhatTheirDeviceReaches) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto launch = [](int peers) {
    const OneGpu gpu;
    struct Kernel {
      DevicePtr pointer;
      int device;
      bool reached;
    } kernel = {gpu.Allocate(100), -1, false};
    Context other;
    Stream stream;
    SPCCL_CHECK(gpu.driver->DevicePrimaryCtxRetain(&other, 1) == kSuccess);
    SPCCL_CHECK(gpu.driver->CtxSetCurrent(other) == kSuccess);
    SPCCL_CHECK(gpu.driver->StreamCreateWithPriority(&stream, 1, 0) == kSuccess);
    if (peers > 0) SPCCL_CHECK(gpu.driver->CtxEnablePeerAccess(gpu.context, 0) == kSuccess);
    const auto run = [](void* data) {
      auto& mine = *static_cast<Kernel*>(data);
      mine.device = Fake().KernelDevice();
      mine.reached = Fake().Reach(mine.pointer, 100) != nullptr;
    };
    SPCCL_CHECK(Fake().Launch(stream, run, &kernel, nullptr) == kSuccess);
    SPCCL_CHECK(gpu.driver->StreamSynchronize(stream) == kSuccess);
    std::_Exit(kernel.device == 1 && kernel.reached ? 0 : 1);
  };
  EXPECT_EXIT(launch(1), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(launch(0), "a kernel on device 1 touches .*without access to that peer");
}

TEST(FaultTest, DelaysChangeNoOrder) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::setenv("SPCCL_FAKE_CUDA_DELAY_US", "500", 1);
    const OneGpu gpu;
    Stream other;
    Event event;
    SPCCL_CHECK(gpu.driver->StreamCreateWithPriority(&other, 1, 0) == kSuccess);
    SPCCL_CHECK(gpu.driver->EventCreate(&event, 2) == kSuccess);
    std::vector<int> order;
    const auto add = [](void* data) {
      auto& seen = *static_cast<std::vector<int>*>(data);
      seen.push_back(static_cast<int>(seen.size()));
    };
    for (int turn = 0; turn < 20; ++turn) {
      const Stream stream = turn % 2 == 0 ? gpu.stream : other;
      SPCCL_CHECK(gpu.driver->StreamWaitEvent(stream, event, 0) == kSuccess);
      SPCCL_CHECK(gpu.driver->LaunchHostFunc(stream, add, &order) == kSuccess);
      SPCCL_CHECK(gpu.driver->EventRecord(event, stream) == kSuccess);
    }
    SPCCL_CHECK(gpu.driver->EventSynchronize(event) == kSuccess);
    std::_Exit(static_cast<int>(order.size()));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(20), "");
}

TEST(FaultTest, ADriverWithoutDevicesCannotBeUsed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SPCCL_FAKE_GPUS", "0", 1);
        const auto driver = Driver::Load(SPCCL_FAKE_CUDA_LIBRARY);
        std::_Exit(absl::IsNotFound(driver.status()) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(FaultTest, TheNthCallFailsAsTheEnvironmentSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SPCCL_FAKE_CUDA_FAIL", "cuMemAlloc_v2:2:2,cuMemAlloc_v2:3:800", 1);
        const OneGpu gpu;
        DevicePtr pointer;
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kSuccess);
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kErrorOutOfMemory);
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kErrorNotPermitted);
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kSuccess);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(FaultTest, MemoryIsFiniteAndBufferIdsAreNotUsedAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SPCCL_FAKE_GPU_BYTES", "1000000", 1);
        const OneGpu gpu;
        DevicePtr pointer;
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1000001) == kErrorOutOfMemory);
        DevicePtr first = gpu.Allocate(600000);
        uint64_t id = 0;
        uint64_t again = 0;
        SPCCL_CHECK(gpu.driver->PointerGetAttribute(&id, kPointerAttributeBufferId, first) ==
                    kSuccess);
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 600000) == kErrorOutOfMemory);
        SPCCL_CHECK(gpu.driver->MemFree(first) == kSuccess);
        SPCCL_CHECK(gpu.Allocate(600000) == first);  // the address is
        SPCCL_CHECK(gpu.driver->PointerGetAttribute(&again, kPointerAttributeBufferId, first) ==
                    kSuccess);
        SPCCL_CHECK(again > id);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(FaultTest, ABrokenDeviceEndsItsWaitsAndFailsItsCalls) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const OneGpu gpu;
        const DevicePtr word = gpu.Allocate(4);
        Context other;
        SPCCL_CHECK(gpu.driver->DevicePrimaryCtxRetain(&other, 1) == kSuccess);
        SPCCL_CHECK(gpu.driver->MemsetD8Async(word, 0, 4, gpu.stream) == kSuccess);
        SPCCL_CHECK(gpu.driver->StreamWaitValue32(gpu.stream, word, 1, 0) == kSuccess);
        Fake().BreakDevice(0, kErrorLaunchFailed);
        SPCCL_CHECK(gpu.driver->StreamSynchronize(gpu.stream) == kErrorLaunchFailed);
        DevicePtr pointer;
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kErrorLaunchFailed);
        SPCCL_CHECK(gpu.driver->CtxSetCurrent(other) == kSuccess);
        SPCCL_CHECK(gpu.driver->MemAlloc(&pointer, 1) == kSuccess);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(FaultTest, PeersAndAttributesAreWhatTheEnvironmentSays) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SPCCL_FAKE_GPUS", "3", 1);
        ::setenv("SPCCL_FAKE_GPU_NO_PEERS", "0-2", 1);
        ::setenv("SPCCL_FAKE_GPU_ATTRIBUTES", "133=1,103=0,16=7,2:16=5", 1);
        const OneGpu gpu;
        int can = 0;
        int cannot = 1;
        Context far;
        SPCCL_CHECK(gpu.driver->DeviceCanAccessPeer(&can, 0, 1) == kSuccess && can == 1);
        SPCCL_CHECK(gpu.driver->DeviceCanAccessPeer(&cannot, 2, 0) == kSuccess && cannot == 0);
        SPCCL_CHECK(gpu.driver->DevicePrimaryCtxRetain(&far, 2) == kSuccess);
        SPCCL_CHECK(gpu.driver->CtxEnablePeerAccess(far, 0) == kErrorPeerAccessUnsupported);
        int mps = 0;
        int posix = 1;
        SPCCL_CHECK(gpu.driver->DeviceGetAttribute(&mps, kDeviceAttributeMpsEnabled, 0) == 0);
        SPCCL_CHECK(gpu.driver->DeviceGetAttribute(
                        &posix, kDeviceAttributeHandleTypePosixFileDescriptorSupported, 0) == 0);
        SPCCL_CHECK(mps == 1 && posix == 0);
        for (const Device device : {0, 1, 2}) {
          int count = 0;
          SPCCL_CHECK(gpu.driver->DeviceGetAttribute(&count, kDeviceAttributeMultiprocessorCount,
                                                     device) == 0);
          SPCCL_CHECK(count == (device == 2 ? 5 : 7));
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace spccl::testing
