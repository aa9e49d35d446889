// Streams, events, copies and stream memory operations of the fake, in one process.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::testing {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): nearly every word is of it

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    EXPECT_EQ(driver_->DevicePrimaryCtxRetain(&context_, 0), kSuccess);
    EXPECT_EQ(driver_->CtxPushCurrent(context_), kSuccess);
    stream_ = NewStream();
    other_ = NewStream();
    EXPECT_EQ(driver_->EventCreate(&event_, kEventDisableTiming), kSuccess);
    void* words = nullptr;
    EXPECT_EQ(driver_->MemHostAlloc(&words, 4096, kMemHostAllocPortable), kSuccess);
    std::memset(words, 0, 4096);
    words_ = static_cast<std::atomic<uint32_t>*>(words);
  }
  ~StreamTest() override {
    EXPECT_EQ(driver_->EventDestroy(event_), kSuccess);
    EXPECT_EQ(driver_->StreamDestroy(stream_), kSuccess);
    EXPECT_EQ(driver_->StreamDestroy(other_), kSuccess);
    EXPECT_EQ(driver_->MemFreeHost(words_), kSuccess);
    spcclFakeHoldings left;
    Fake().Count(&left);
    EXPECT_EQ(left.allocations + left.host + left.streams + left.events, 0u);
    Context popped;
    EXPECT_EQ(driver_->CtxPopCurrent(&popped), kSuccess);
    EXPECT_EQ(driver_->DevicePrimaryCtxRelease(0), kSuccess);
  }

  Stream NewStream() {
    Stream stream = nullptr;
    EXPECT_EQ(driver_->StreamCreateWithPriority(&stream, kStreamNonBlocking, 0), kSuccess);
    return stream;
  }
  DevicePtr Word(int index) const {
    DevicePtr pointer = 0;
    EXPECT_EQ(driver_->MemHostGetDevicePointer(&pointer, &words_[index], 0), kSuccess);
    return pointer;
  }
  void Wait(Stream stream, int word, uint32_t value, unsigned flags = kStreamWaitValueGeq) {
    EXPECT_EQ(driver_->StreamWaitValue32(stream, Word(word), value, flags), kSuccess);
  }
  void Write(Stream stream, int word, uint32_t value) {
    EXPECT_EQ(driver_->StreamWriteValue32(stream, Word(word), value, kStreamWriteValueDefault),
              kSuccess);
  }
  DevicePtr Allocate(size_t bytes) {
    DevicePtr pointer = 0;
    EXPECT_EQ(driver_->MemAlloc(&pointer, bytes), kSuccess);
    return pointer;
  }

  std::shared_ptr<const Driver> driver_ = LoadFakeDriver();
  Context context_ = nullptr;
  Stream stream_ = nullptr, other_ = nullptr;
  Event event_ = nullptr;
  std::atomic<uint32_t>* words_ = nullptr;
};

TEST_F(StreamTest, CopiesAndMemsetsRunInOrder) {
  const DevicePtr memory = Allocate(1000);
  std::vector<char> host(1000, 'a');
  const auto address = reinterpret_cast<DevicePtr>(host.data());
  EXPECT_EQ(driver_->MemcpyAsync(memory, address, 1000, stream_), kSuccess);
  EXPECT_EQ(driver_->MemsetD8Async(memory + 10, 'b', 980, stream_), kSuccess);
  std::fill(host.begin(), host.end(), 'c');  // has been staged
  EXPECT_EQ(driver_->MemcpyAsync(address, memory, 1000, stream_), kSuccess);
  EXPECT_EQ(std::string(host.data(), 1000),
            std::string(10, 'a') + std::string(980, 'b') + std::string(10, 'a'));
  EXPECT_EQ(driver_->MemFree(memory), kSuccess);
}

TEST_F(StreamTest, WorkIsAsynchronousAndAWaitMayPrecedeTheWrite) {
  Wait(stream_, 0, 1);
  Write(stream_, 1, 7);
  EXPECT_EQ(driver_->StreamQuery(stream_), kErrorNotReady);
  EXPECT_EQ(words_[1].load(), 0u);
  Write(other_, 0, 1);
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(words_[1].load(), 7u);
  EXPECT_EQ(driver_->StreamQuery(stream_), kSuccess);
}

TEST_F(StreamTest, ACpuMayWriteWhatAStreamWaitsFor) {
  Wait(stream_, 0, 1);
  words_[0].store(1);  // wakes nobody
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
}

TEST_F(StreamTest, GeqIsCyclicAndEqIsExact) {
  words_[0] = 2;
  Wait(stream_, 0, 0xffff'fff0);  // 2 is 18 past it
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
  Wait(stream_, 0, 1, kStreamWaitValueEq);
  Write(stream_, 1, 1);
  Wait(other_, 0, 3);
  EXPECT_EQ(driver_->StreamQuery(stream_), kErrorNotReady);
  words_[0] = 3;
  EXPECT_EQ(driver_->StreamSynchronize(other_), kSuccess);
  EXPECT_EQ(driver_->StreamQuery(stream_), kErrorNotReady);
  words_[0] = 1;
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
}

TEST_F(StreamTest, AnUnrecordedEventIsComplete) {
  EXPECT_EQ(driver_->EventQuery(event_), kSuccess);
  EXPECT_EQ(driver_->EventSynchronize(event_), kSuccess);
  EXPECT_EQ(driver_->StreamWaitEvent(stream_, event_, 0), kSuccess);
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
}

TEST_F(StreamTest, AnEventIsWhatWasRecordedWhenItWasWaitedFor) {
  Wait(stream_, 0, 1);
  EXPECT_EQ(driver_->EventRecord(event_, stream_), kSuccess);
  EXPECT_EQ(driver_->StreamWaitEvent(other_, event_, 0), kSuccess);
  Write(other_, 1, 1);
  Wait(stream_, 0, 2);
  EXPECT_EQ(driver_->EventRecord(event_, stream_), kSuccess);  // not what `other_` waits for
  EXPECT_EQ(driver_->EventQuery(event_), kErrorNotReady);
  words_[0] = 1;
  EXPECT_EQ(driver_->StreamSynchronize(other_), kSuccess);
  EXPECT_EQ(words_[1].load(), 1u);
  EXPECT_EQ(driver_->EventQuery(event_), kErrorNotReady);
  words_[0] = 2;
  EXPECT_EQ(driver_->EventSynchronize(event_), kSuccess);
}

TEST_F(StreamTest, HostFunctionsAndKernelsRunInOrder) {
  std::vector<int> order;
  const auto add = [](void* data) {
    auto& vector = *static_cast<std::vector<int>*>(data);
    vector.push_back(static_cast<int>(vector.size()));
  };
  const auto add_late = [](void* data) { static_cast<std::vector<int>*>(data)->push_back(-1); };
  EXPECT_EQ(driver_->LaunchHostFunc(stream_, add, &order), kSuccess);
  EXPECT_EQ(Fake().Launch(stream_, add, &order, add_late), kSuccess);
  EXPECT_EQ(driver_->LaunchHostFunc(stream_, add, &order), kSuccess);
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, -1, 3));
}

TEST_F(StreamTest, TheLegacyStreamIsOrderedWithThoseThatBlock) {
  Stream blocking = nullptr;
  EXPECT_EQ(driver_->StreamCreateWithPriority(&blocking, 0, 0), kSuccess);
  Wait(blocking, 0, 1);
  Write(nullptr, 1, 1);
  Write(blocking, 2, 1);
  Write(other_, 3, 1);  // does not block
  EXPECT_EQ(driver_->StreamSynchronize(other_), kSuccess);
  EXPECT_EQ(words_[3].load(), 1u);
  EXPECT_EQ(driver_->StreamQuery(kStreamLegacy), kErrorNotReady);
  EXPECT_EQ(words_[1].load() + words_[2].load(), 0u);
  words_[0] = 1;
  EXPECT_EQ(driver_->StreamSynchronize(blocking), kSuccess);
  EXPECT_EQ(words_[1].load() + words_[2].load(), 2u);
  EXPECT_EQ(driver_->StreamDestroy(blocking), kSuccess);
}

TEST_F(StreamTest, EachThreadHasAStreamOfItsOwn) {
  Wait(kStreamPerThread, 0, 1);
  std::thread([&] {
    EXPECT_EQ(driver_->CtxSetCurrent(context_), kSuccess);
    Write(kStreamPerThread, 1, 1);
    EXPECT_EQ(driver_->StreamSynchronize(kStreamPerThread), kSuccess);
  }).join();
  EXPECT_EQ(words_[1].load(), 1u);
  EXPECT_EQ(driver_->StreamQuery(kStreamPerThread), kErrorNotReady);
  words_[0] = 1;
  EXPECT_EQ(driver_->StreamSynchronize(kStreamPerThread), kSuccess);
}

TEST_F(StreamTest, ADestroyedStreamEndsItsWork) {
  const Stream third = NewStream();
  Wait(third, 0, 1);
  Write(third, 1, 1);
  EXPECT_EQ(driver_->EventRecord(event_, third), kSuccess);
  EXPECT_EQ(driver_->StreamDestroy(third), kSuccess);
  EXPECT_EQ(driver_->EventQuery(event_), kErrorNotReady);
  words_[0] = 1;
  EXPECT_EQ(driver_->EventSynchronize(event_), kSuccess);
  EXPECT_EQ(words_[1].load(), 1u);
}

TEST_F(StreamTest, FreeingWaitsForTheDevicesWork) {
  const DevicePtr memory = Allocate(100);
  Wait(stream_, 0, 1);
  EXPECT_EQ(driver_->MemsetD8Async(memory, 1, 100, stream_), kSuccess);
  std::thread writer([&] {
    EXPECT_EQ(driver_->CtxSetCurrent(context_), kSuccess);
    Write(other_, 0, 1);
  });
  EXPECT_EQ(driver_->MemFree(memory), kSuccess);
  EXPECT_EQ(driver_->StreamQuery(stream_), kSuccess);
  writer.join();
}

TEST_F(StreamTest, EveryCallNeedsACurrentContext) {
  std::thread([&] {
    DevicePtr pointer;
    EXPECT_EQ(driver_->MemAlloc(&pointer, 16), kErrorInvalidContext);
    EXPECT_EQ(driver_->StreamSynchronize(stream_), kErrorInvalidContext);
    EXPECT_EQ(driver_->EventQuery(event_), kErrorInvalidContext);
    Context current = context_;
    EXPECT_EQ(driver_->CtxGetCurrent(&current), kSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
}

}  // namespace
}  // namespace spccl::testing
