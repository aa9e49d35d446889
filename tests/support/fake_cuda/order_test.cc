// Under ThreadSanitizer: that work is ordered where CUDA orders it, and that what lacks an order is
// seen as a race.
#include <cstdlib>
#include <functional>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::testing {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): nearly every word is of it

constexpr size_t kBytes = 64;

// Two streams, an event, memory that both write, and a word.
struct TwoStreams {
  explicit TwoStreams(unsigned flags = kStreamNonBlocking) {
    SPCCL_CHECK(driver->DevicePrimaryCtxRetain(&context, 0) == kSuccess);
    SPCCL_CHECK(driver->CtxPushCurrent(context) == kSuccess);
    SPCCL_CHECK(driver->StreamCreateWithPriority(&first, flags, 0) == kSuccess);
    SPCCL_CHECK(driver->StreamCreateWithPriority(&second, flags, 0) == kSuccess);
    SPCCL_CHECK(driver->EventCreate(&event, kEventDisableTiming) == kSuccess);
    SPCCL_CHECK(driver->MemAlloc(&memory, kBytes) == kSuccess);
    SPCCL_CHECK(driver->MemAlloc(&word, 4) == kSuccess);
    Set(first, word, 0, 4);
    Record(first);
    WaitForEvent(second);
    Synchronize(second);
  }
  void Set(Stream stream, DevicePtr to, unsigned char value, size_t bytes = kBytes) const {
    SPCCL_CHECK(driver->MemsetD8Async(to, value, bytes, stream) == kSuccess);
  }
  void Record(Stream stream) const { SPCCL_CHECK(driver->EventRecord(event, stream) == kSuccess); }
  void WaitForEvent(Stream stream) const {
    SPCCL_CHECK(driver->StreamWaitEvent(stream, event, 0) == kSuccess);
  }
  void Write(Stream stream, uint32_t value) const {
    SPCCL_CHECK(driver->StreamWriteValue32(stream, word, value, 0) == kSuccess);
  }
  void WaitForValue(Stream stream, uint32_t value) const {
    SPCCL_CHECK(driver->StreamWaitValue32(stream, word, value, kStreamWaitValueGeq) == kSuccess);
  }
  void Synchronize(Stream stream) const {
    SPCCL_CHECK(driver->StreamSynchronize(stream) == kSuccess);
  }
  // On the host.
  void Touch() const { ++*reinterpret_cast<unsigned char*>(memory); }

  std::shared_ptr<const Driver> driver = LoadFakeDriver();
  Context context = nullptr;
  Stream first = nullptr, second = nullptr;
  Event event = nullptr;
  DevicePtr memory = 0, word = 0;
};

struct Case {
  const char* name;
  bool ordered;
  std::function<void(const TwoStreams& gpu)> run;
  unsigned flags = kStreamNonBlocking;
};

std::vector<Case> Cases() {
  return {
      {"OneStream", true,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Set(gpu.first, gpu.memory, 2);
       }},
      {"Event", true,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Record(gpu.first);
         gpu.WaitForEvent(gpu.second);
         gpu.Set(gpu.second, gpu.memory, 2);
       }},
      {"EventThatWasRecordedTooEarly", false,
       [](const TwoStreams& gpu) {
         gpu.Record(gpu.first);
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.WaitForEvent(gpu.second);
         gpu.Set(gpu.second, gpu.memory, 2);
       }},
      {"NoEvent", false,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Set(gpu.second, gpu.memory, 2);
       }},
      {"Value", true,
       [](const TwoStreams& gpu) {
         gpu.WaitForValue(gpu.second, 1);
         gpu.Set(gpu.second, gpu.memory, 2);
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Write(gpu.first, 1);
       }},
      {"ValueThatIsWrittenTooEarly", false,
       [](const TwoStreams& gpu) {
         gpu.WaitForValue(gpu.second, 1);
         gpu.Set(gpu.second, gpu.memory, 2);
         gpu.Write(gpu.first, 1);
         gpu.Set(gpu.first, gpu.memory, 1);
       }},
      {"HostBeforeAndAfter", true,
       [](const TwoStreams& gpu) {
         gpu.Touch();
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Synchronize(gpu.first);
         gpu.Touch();
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Record(gpu.first);
         SPCCL_CHECK(gpu.driver->EventSynchronize(gpu.event) == kSuccess);
         gpu.Touch();
       }},
      // Whoever asks the driver something else has not waited, though the work may long be done.
      {"HostThatDoesNotWait", false,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Synchronize(gpu.second);
         gpu.Set(gpu.second, gpu.word, 1, 4);
         gpu.Synchronize(gpu.second);
         gpu.Touch();
       }},
      {"StreamsThatBlock", true,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Set(nullptr, gpu.memory, 2);
         gpu.Set(gpu.second, gpu.memory, 3);
       },
       0},
      {"StreamsThatDoNotBlock", false,
       [](const TwoStreams& gpu) {
         gpu.Set(gpu.first, gpu.memory, 1);
         gpu.Set(nullptr, gpu.memory, 2);
       }},
  };
}

class OrderTest : public ::testing::TestWithParam<Case> {};

TEST_P(OrderTest, IsSeenByThreadSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
#if defined(__SANITIZE_THREAD__)
  const bool is_race = !GetParam().ordered;
#else
  const bool is_race = false;
#endif
  const auto run = [] {
    const TwoStreams gpu(GetParam().flags);
    GetParam().run(gpu);
    gpu.Synchronize(gpu.first);
    gpu.Synchronize(gpu.second);
    gpu.Synchronize(nullptr);
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(is_race ? 66 : 0), is_race ? "data race" : "");
}

INSTANTIATE_TEST_SUITE_P(Rules, OrderTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace spccl::testing
