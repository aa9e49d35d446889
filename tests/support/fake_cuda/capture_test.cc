// Capture and replay, by the driver's own functions.
#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace spccl::testing {
namespace {

using namespace spccl::cuda;  // NOLINT(google-build-using-namespace): nearly every word is of it

class CaptureTest : public ::testing::Test {
 protected:
  CaptureTest() {
    EXPECT_EQ(driver_->DevicePrimaryCtxRetain(&context_, 0), kSuccess);
    EXPECT_EQ(driver_->CtxPushCurrent(context_), kSuccess);
    for (Stream* stream : {&stream_, &side_}) {
      EXPECT_EQ(driver_->StreamCreateWithPriority(stream, kStreamNonBlocking, 0), kSuccess);
    }
    for (Event* event : {&fork_, &join_}) EXPECT_EQ(driver_->EventCreate(event, 2), kSuccess);
    void* words = nullptr;
    EXPECT_EQ(driver_->MemHostAlloc(&words, 4096, kMemHostAllocPortable), kSuccess);
    std::memset(words, 0, 4096);
    words_ = static_cast<std::atomic<uint32_t>*>(words);
    base_ = reinterpret_cast<DevicePtr>(words);
  }
  ~CaptureTest() override {
    for (Stream stream : {stream_, side_}) {
      EXPECT_EQ(driver_->StreamDestroy(stream), kSuccess);
    }
    for (Event event : {fork_, join_}) EXPECT_EQ(driver_->EventDestroy(event), kSuccess);
    EXPECT_EQ(driver_->MemFreeHost(words_), kSuccess);
    spcclFakeHoldings left;
    Fake().Count(&left);
    EXPECT_EQ(left.graphs, 0u);
    Context popped;
    EXPECT_EQ(driver_->CtxPopCurrent(&popped), kSuccess);
    EXPECT_EQ(driver_->DevicePrimaryCtxRelease(0), kSuccess);
  }

  void Begin(int mode = kStreamCaptureModeThreadLocal) {
    EXPECT_EQ(driver_->StreamBeginCapture(stream_, mode), kSuccess);
  }
  Graph End() {
    Graph graph = nullptr;
    EXPECT_EQ(driver_->StreamEndCapture(stream_, &graph), kSuccess);
    return graph;
  }
  // Of a capture that has gone wrong.
  Result EndResult() {
    Graph graph = nullptr;
    const Result result = driver_->StreamEndCapture(stream_, &graph);
    EXPECT_EQ(graph, nullptr);
    return result;
  }
  GraphExec Instantiate(Graph graph) {
    GraphExec exec = nullptr;
    EXPECT_EQ(driver_->GraphInstantiate(&exec, graph, 0), kSuccess);
    return exec;
  }
  void Count(Stream stream, std::atomic<int>* counter) {
    EXPECT_EQ(driver_->LaunchHostFunc(
                  stream, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, counter),
              kSuccess);
  }
  int Status(Stream stream) {
    int status = -1;
    EXPECT_EQ(driver_->StreamIsCapturing(stream, &status), kSuccess);
    return status;
  }

  std::shared_ptr<const Driver> driver_ = LoadFakeDriver();
  Context context_ = nullptr;
  Stream stream_ = nullptr, side_ = nullptr;
  Event fork_ = nullptr, join_ = nullptr;
  std::atomic<uint32_t>* words_ = nullptr;
  DevicePtr base_ = 0;
};

TEST_F(CaptureTest, CapturedWorkRunsAtEveryLaunchAndNotBefore) {
  std::atomic<int> runs = 0;
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  const auto drop = [](void* data) { *static_cast<std::atomic<int>*>(data) += 100; };
  Begin();
  EXPECT_EQ(Status(stream_), kStreamCaptureStatusActive);
  EXPECT_EQ(Status(side_), kStreamCaptureStatusNone);
  // The order of an operation whose words take themselves back.
  EXPECT_EQ(driver_->StreamWriteValue32(stream_, base_, 1, 0), kSuccess);
  EXPECT_EQ(driver_->StreamWaitValue32(stream_, base_ + 4, 1, kStreamWaitValueEq), kSuccess);
  EXPECT_EQ(driver_->StreamWriteValue32(stream_, base_ + 4, 0, 0), kSuccess);
  EXPECT_EQ(driver_->MemsetD8Async(base_ + 8, 7, 4, stream_), kSuccess);
  EXPECT_EQ(driver_->MemcpyAsync(base_ + 12, base_ + 8, 4, stream_), kSuccess);
  EXPECT_EQ(Fake().Launch(stream_, count, &runs, drop), kSuccess);
  const Graph graph = End();
  EXPECT_EQ(Status(stream_), kStreamCaptureStatusNone);
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(words_[0].load(), 0u);

  const GraphExec exec = Instantiate(graph);
  EXPECT_EQ(driver_->GraphDestroy(graph), kSuccess);
  for (int replay = 1; replay <= 3; ++replay) {
    EXPECT_EQ(driver_->GraphLaunch(exec, stream_), kSuccess);
    EXPECT_EQ(driver_->StreamQuery(stream_), kErrorNotReady);
    EXPECT_EQ(driver_->StreamWaitValue32(side_, base_, 1, kStreamWaitValueEq), kSuccess);
    EXPECT_EQ(driver_->StreamWriteValue32(side_, base_, 0, 0), kSuccess);
    EXPECT_EQ(driver_->StreamWriteValue32(side_, base_ + 4, 1, 0), kSuccess);
    EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
    EXPECT_EQ(words_[1].load(), 0u);
    EXPECT_EQ(words_[3].load(), 0x07070707u);
    EXPECT_EQ(runs.load(), replay);
  }
  EXPECT_EQ(driver_->GraphExecDestroy(exec), kSuccess);
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
  EXPECT_EQ(runs.load(), 103);
}

TEST_F(CaptureTest, EventsTakeOtherStreamsInAndHaveToBringThemBack) {
  std::atomic<int> runs = 0;
  for (const bool joined : {true, false}) {
    Begin();
    Count(stream_, &runs);
    EXPECT_EQ(driver_->EventRecord(fork_, stream_), kSuccess);
    EXPECT_EQ(driver_->StreamWaitEvent(side_, fork_, 0), kSuccess);
    EXPECT_EQ(Status(side_), kStreamCaptureStatusActive);
    Count(side_, &runs);
    EXPECT_EQ(driver_->EventRecord(join_, side_), kSuccess);
    EXPECT_EQ(driver_->EventQuery(join_), kErrorCapturedEvent);
    if (!joined) break;
    EXPECT_EQ(driver_->StreamWaitEvent(stream_, join_, 0), kSuccess);
    const Graph graph = End();
    const GraphExec exec = Instantiate(graph);
    EXPECT_EQ(driver_->GraphLaunch(exec, stream_), kSuccess);
    EXPECT_EQ(driver_->StreamSynchronize(stream_), kSuccess);
    EXPECT_EQ(runs.load(), 2);
    EXPECT_EQ(driver_->GraphExecDestroy(exec), kSuccess);
    EXPECT_EQ(driver_->GraphDestroy(graph), kSuccess);
  }
  EXPECT_EQ(EndResult(), kErrorStreamCaptureUnjoined);
  EXPECT_EQ(Status(side_), kStreamCaptureStatusNone);
}

TEST_F(CaptureTest, WhatIsNotCapturedMayNotBeWaitedFor) {
  EXPECT_EQ(driver_->EventRecord(fork_, side_), kSuccess);
  Begin();
  EXPECT_EQ(driver_->StreamWaitEvent(stream_, fork_, 0), kErrorStreamCaptureIsolation);
  EXPECT_EQ(Status(stream_), kStreamCaptureStatusInvalidated);
  EXPECT_EQ(driver_->StreamWriteValue32(stream_, base_, 1, 0), kErrorStreamCaptureInvalidated);
  EXPECT_EQ(EndResult(), kErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, UnsafeCallsInvalidateWhatTheModeCovers) {
  DevicePtr pointer = 0;
  Begin(kStreamCaptureModeGlobal);
  EXPECT_EQ(driver_->MemAlloc(&pointer, 16), kErrorStreamCaptureUnsupported);
  EXPECT_EQ(EndResult(), kErrorStreamCaptureInvalidated);

  Begin(kStreamCaptureModeThreadLocal);
  std::thread([&] {
    EXPECT_EQ(driver_->CtxSetCurrent(context_), kSuccess);
    EXPECT_EQ(driver_->StreamSynchronize(side_), kSuccess);  // another thread's
  }).join();
  int mode = kStreamCaptureModeRelaxed;
  EXPECT_EQ(driver_->ThreadExchangeStreamCaptureMode(&mode), kSuccess);
  EXPECT_EQ(mode, kStreamCaptureModeGlobal);
  EXPECT_EQ(driver_->MemAlloc(&pointer, 16), kSuccess);
  EXPECT_EQ(driver_->MemFree(pointer), kSuccess);
  EXPECT_EQ(driver_->ThreadExchangeStreamCaptureMode(&mode), kSuccess);
  EXPECT_EQ(driver_->GraphDestroy(End()), kSuccess);

  Begin();
  EXPECT_EQ(driver_->StreamSynchronize(stream_), kErrorStreamCaptureUnsupported);
  EXPECT_EQ(EndResult(), kErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, AGraphKeepsUserObjectsUntilItsLastLaunchHasEnded) {
  std::promise<void> destroyed;
  UserObject object = nullptr;
  EXPECT_EQ(driver_->UserObjectCreate(
                &object, &destroyed,
                [](void* data) { static_cast<std::promise<void>*>(data)->set_value(); }, 1,
                kUserObjectNoDestructorSync),
            kSuccess);
  Begin();
  int status = 0;
  uint64_t id = 0;
  Graph capturing = nullptr;
  EXPECT_EQ(driver_->StreamGetCaptureInfo(stream_, &status, &id, &capturing, nullptr, nullptr),
            kSuccess);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(driver_->GraphRetainUserObject(capturing, object, 1, kGraphUserObjectMove), kSuccess);
  EXPECT_EQ(driver_->StreamWaitValue32(stream_, base_, 1, kStreamWaitValueGeq), kSuccess);
  const Graph graph = End();
  EXPECT_EQ(graph, capturing);
  const GraphExec exec = Instantiate(graph);
  EXPECT_EQ(driver_->GraphLaunch(exec, stream_), kSuccess);
  EXPECT_EQ(driver_->GraphExecDestroy(exec), kSuccess);
  EXPECT_EQ(driver_->GraphDestroy(graph), kSuccess);
  auto future = destroyed.get_future();
  EXPECT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  words_[0] = 1;
  EXPECT_EQ(future.wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace spccl::testing
