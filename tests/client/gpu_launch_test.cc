#include "client/gpu_launch.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/client_test.h"
#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/gpu_program.h"

namespace spccl::testing {
namespace {

using shm::RequestType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kCount = 1000, kBytes = kCount * sizeof(float);

class GpuLaunchTest : public ClientTest {
 protected:
  GpuLaunchTest() {
    ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_FAKE_CUDA_LIBRARY, 1);
    stream_ = gpu_.NewStream();
  }
  ~GpuLaunchTest() override {
    gpu_.Synchronize(stream_);
    gpu_.Must(gpu_.driver().StreamDestroy(stream_));
  }

  void* NewBuffer(float value = 1) const {
    void* const memory = gpu_.Allocate(kBytes);
    gpu_.Upload(std::vector<float>(kCount, value), memory, stream_);
    return memory;
  }
  spcclResult_t Copy(const void* send, void* recv, spcclComm_t comm) const {
    return spcclAllReduce(send, recv, kCount, spcclFloat32, spcclSum, comm,
                          reinterpret_cast<spcclStream_t>(stream_));
  }
  bool Holds(const void* memory, float value) const {
    return gpu_.Download<float>(memory, kCount, stream_) == std::vector<float>(kCount, value);
  }
  bool IsBusy() const { return gpu_.driver().StreamQuery(stream_) == cuda::kErrorNotReady; }
  static spcclResult_t HealthOf(spcclComm_t comm) {
    spcclResult_t health = spcclSuccess;
    EXPECT_EQ(spcclCommGetAsyncError(comm, &health), spcclSuccess);
    return health;
  }
  void ExpectPointersBetweenElementsAreRefused() {
    const spcclComm_t comm = OneRank();
    auto* const memory = static_cast<std::byte*>(gpu_.Allocate(3 * kBytes));
    EXPECT_EQ(Copy(memory + 2, memory + 2 * kBytes, comm), spcclInvalidArgument);
    EXPECT_THAT(LastError(comm), AllOf(HasSubstr("sendbuff is 0x"),
                                       HasSubstr("no multiple of the 4 bytes of an element")));
    EXPECT_EQ(Copy(memory, memory + 2 * kBytes - 1, comm), spcclInvalidArgument);
    EXPECT_THAT(LastError(comm), HasSubstr("recvbuff is 0x"));
    EXPECT_EQ(HealthOf(comm), spcclSuccess);
    EXPECT_EQ(Copy(memory, memory + 2 * kBytes, comm), spcclSuccess) << LastError();
    gpu_.Synchronize(stream_);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }

  const GpuProgram gpu_{LoadFakeDriver()};
  cuda::Stream stream_;
};

TEST_F(GpuLaunchTest, MemoryIsHandedOverOnceAndNamedByIdAndOffset) {
  const spcclComm_t comm = OneRank();
  auto* const memory = static_cast<std::byte*>(gpu_.Allocate(8 * kBytes));
  void* const recv = NewBuffer(0);
  for (const size_t offset : {size_t{0}, kBytes, 3 * kBytes}) {
    gpu_.Upload(std::vector<float>(kCount, static_cast<float>(offset + 1)), memory + offset,
                stream_);
    ASSERT_EQ(Copy(memory + offset, recv, comm), spcclSuccess) << LastError();
    EXPECT_TRUE(Holds(recv, static_cast<float>(offset + 1)));
  }
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 2u);
  EXPECT_EQ(daemon_.Requests(RequestType::kOrderMemory), 1u);
  const std::vector<shm::Submission> seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].send.buffer_id, seen[2].send.buffer_id);
  EXPECT_EQ(seen[2].send.offset, 3 * kBytes);
  EXPECT_NE(seen[0].order_slot, 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, WhatIsBehindTheCallWaitsForTheOperationAndTheCallForNothing) {
  const spcclComm_t comm = OneRank();
  void* const send = NewBuffer(7);
  void* const recv = NewBuffer(0);
  daemon_.HoldOperations(true);
  ASSERT_EQ(Copy(send, recv, comm), spcclSuccess) << LastError();
  ASSERT_TRUE(daemon_.AwaitSubmissions(1));
  EXPECT_TRUE(IsBusy());
  daemon_.HoldOperations(false);
  EXPECT_TRUE(Holds(recv, 7));
  EXPECT_EQ(HealthOf(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, AnAddressThatIsUsedAgainIsOtherMemory) {
  const spcclComm_t comm = OneRank();
  void* const recv = NewBuffer(0);
  void* const first = NewBuffer(1);
  ASSERT_EQ(Copy(first, recv, comm), spcclSuccess) << LastError();
  EXPECT_TRUE(Holds(recv, 1));
  gpu_.Free(first);
  void* const second = NewBuffer(2);
  ASSERT_EQ(Copy(second, recv, comm), spcclSuccess) << LastError();
  EXPECT_TRUE(Holds(recv, 2));
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 3u);
  // What was freed is given back.
  EXPECT_TRUE(daemon_.AwaitRequests(RequestType::kDeregister, 1));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, RegistrationsAreCounted) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  void *first, *second;
  ASSERT_EQ(spcclCommRegister(comm, memory, kBytes, &first), spcclSuccess) << LastError();
  ASSERT_EQ(spcclCommRegister(comm, memory, 16, &second), spcclSuccess) << LastError();
  EXPECT_EQ(Copy(memory, memory, comm), spcclSuccess);
  gpu_.Synchronize(stream_);
  EXPECT_EQ(HealthOf(comm), spcclSuccess);  // takes the completion
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 1u);
  EXPECT_EQ(spcclCommDeregister(comm, first), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(RequestType::kDeregister), 0u);
  EXPECT_EQ(spcclCommDeregister(comm, second), spcclSuccess);
  EXPECT_TRUE(daemon_.AwaitRequests(RequestType::kDeregister, 1));
  EXPECT_EQ(spcclCommDeregister(comm, second), spcclInvalidUsage);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, WhatTheDaemonDoesNotTakeIsCopied) {
  daemon_.Refuse(RequestType::kRegisterCuda, shm::Result::kInvalidUsage, "no GPU here");
  const spcclComm_t comm = OneRank();
  void* const send = NewBuffer(5);
  void* const recv = NewBuffer(0);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Copy(send, recv, comm), spcclSuccess) << LastError();
    EXPECT_TRUE(Holds(recv, 5));
  }
  // Neither is it asked for again, nor does every operation need a buffer of its own (the
  // completion may come a little after the stream has gone on).
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 1u);
  EXPECT_LE(daemon_.Requests(RequestType::kRegisterMemfd), 2u);
  EXPECT_NE(daemon_.submissions()[0].order_slot, 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, AllocationsOfAPoolWithoutHandlesAreCopied) {
  // As cudaMallocAsync's default pool: neither kind of handle.
  const cuda::Driver& driver = gpu_.driver();
  cuda::MemAllocationProp prop{};
  prop.type = cuda::kMemAllocationTypePinned;
  prop.location = {.type = cuda::kMemLocationTypeDevice, .id = 0};
  size_t bytes = 0;
  gpu_.Must(driver.MemGetAllocationGranularity(&bytes, &prop, cuda::kMemAllocGranularityMinimum));
  cuda::DevicePtr base = 0;
  cuda::AllocationHandle handle;
  gpu_.Must(driver.MemAddressReserve(&base, bytes, 0, 0, 0));
  gpu_.Must(driver.MemCreate(&handle, bytes, &prop, 0));
  gpu_.Must(driver.MemMap(base, bytes, 0, handle, 0));
  gpu_.Must(driver.MemRelease(handle));
  const cuda::MemAccessDesc access{.location = prop.location,
                                   .flags = cuda::kMemAccessFlagsProtReadWrite};
  gpu_.Must(driver.MemSetAccess(base, bytes, &access, 1));
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const memory = reinterpret_cast<void*>(base);
  gpu_.Upload(std::vector<float>(kCount, 3), memory, stream_);
  void* const recv = NewBuffer(0);
  const spcclComm_t comm = OneRank();
  ASSERT_EQ(Copy(memory, recv, comm), spcclSuccess) << LastError();
  EXPECT_TRUE(Holds(recv, 3));
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterMemfd), 1u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  gpu_.Must(driver.MemUnmap(base, bytes));
  gpu_.Must(driver.MemAddressFree(base, bytes));
}

TEST_F(GpuLaunchTest, OfMemoryOfTooManyPiecesAPartIsHandedOver) {
  const cuda::Driver& driver = gpu_.driver();
  cuda::MemAllocationProp prop{};
  prop.type = cuda::kMemAllocationTypePinned;
  prop.requested_handle_types = cuda::kMemHandleTypePosixFileDescriptor;
  prop.location = {.type = cuda::kMemLocationTypeDevice, .id = 0};
  size_t piece = 0;
  gpu_.Must(driver.MemGetAllocationGranularity(&piece, &prop, cuda::kMemAllocGranularityMinimum));
  const size_t bytes = piece * (shm::kMaxCudaPieces + 1);
  cuda::DevicePtr base = 0;
  gpu_.Must(driver.MemAddressReserve(&base, bytes, 0, 0, 0));
  for (cuda::DevicePtr at = base; at < base + bytes; at += piece) {
    cuda::AllocationHandle handle;
    gpu_.Must(driver.MemCreate(&handle, piece, &prop, 0));
    gpu_.Must(driver.MemMap(at, piece, 0, handle, 0));
    gpu_.Must(driver.MemRelease(handle));
  }
  const cuda::MemAccessDesc access{.location = prop.location,
                                   .flags = cuda::kMemAccessFlagsProtReadWrite};
  gpu_.Must(driver.MemSetAccess(base, bytes, &access, 1));
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const memory = reinterpret_cast<void*>(base);
  gpu_.Upload(std::vector<float>(kCount, 3), memory, stream_);
  const spcclComm_t comm = OneRank();
  void* handle = nullptr;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(spcclCommRegister(comm, memory, bytes, &handle), spcclSuccess) << LastError();
    EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), round == 0 ? 0u : 1u);
    ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
    gpu_.Synchronize(stream_);
    EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 1u);
  }
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterMemfd), 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  for (cuda::DevicePtr at = base; at < base + bytes; at += piece) {
    gpu_.Must(driver.MemUnmap(at, piece));
  }
  gpu_.Must(driver.MemAddressFree(base, bytes));
}

TEST_F(GpuLaunchTest, HostMemoryThatTheDriverKnowsIsHostMemory) {
  const spcclComm_t comm = OneRank();
  void* pinned = nullptr;
  gpu_.Must(gpu_.driver().MemHostAlloc(&pinned, kBytes, 0));
  auto* const values = static_cast<float*>(pinned);
  for (size_t i = 0; i < kCount; ++i) values[i] = 4;
  std::vector<float> recv(kCount);
  // The null stream: synchronous.
  ASSERT_EQ(spcclAllReduce(values, recv.data(), kCount, spcclFloat32, spcclSum, comm, nullptr),
            spcclSuccess)
      << LastError();
  EXPECT_EQ(recv, std::vector<float>(kCount, 4));
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 0u);
  EXPECT_EQ(daemon_.submissions()[0].order_slot, 0u);
  // A CUDA stream is no stream of the library's.
  EXPECT_EQ(Copy(values, recv.data(), comm), spcclInvalidArgument);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  gpu_.Must(gpu_.driver().MemFreeHost(pinned));
}

TEST_F(GpuLaunchTest, AFailedOperationFailsTheCommunicatorAndLetsTheStreamGoOn) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  gpu_.Synchronize(stream_);
  EXPECT_EQ(HealthOf(comm), spcclInvalidUsage);
  EXPECT_THAT(LastError(comm), HasSubstr("ranks disagree"));
  EXPECT_EQ(Copy(memory, memory, comm), spcclInvalidUsage);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, SlotsAreUsedAgainAfterErrorsToo) {
  void* const memory = NewBuffer();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  for (uint32_t i = 0; i < shm::kEagerSlots + 10; ++i) {
    const spcclComm_t comm = OneRank();
    ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
    gpu_.Synchronize(stream_);
    ASSERT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }
}

// A rank that is its whole share of calls ahead waits, in a call and in a group, for what calls of
// another one in that group and on other threads let end.
TEST_F(GpuLaunchTest, ARankThatIsFarAheadHoldsNobodyUp) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess) << LastError();
  void* const memory = NewBuffer();
  const cuda::Stream streams[] = {stream_, gpu_.NewStream()};
  const auto call = [&](int rank) {
    EXPECT_EQ(spcclAllReduce(memory, memory, kCount, spcclFloat32, spcclSum, comms[rank],
                             reinterpret_cast<spcclStream_t>(streams[rank])),
              spcclSuccess)
        << LastError();
  };
  constexpr int kAhead = shm::kEagerSlots / 2;
  for (int i = 0; i < kAhead; ++i) call(1);
  std::thread alone([&] { call(1); });
  std::thread grouped([&] {
    EXPECT_EQ(spcclGroupStart(), spcclSuccess);
    for (const int rank : {0, 1}) call(rank);
    EXPECT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
  });
  for (int i = 0; i < kAhead + 1; ++i) call(0);
  alone.join();
  grouped.join();
  for (const int rank : {0, 1}) {
    gpu_.Synchronize(streams[rank]);
    EXPECT_EQ(spcclCommDestroy(comms[rank]), spcclSuccess);
  }
  gpu_.Must(gpu_.driver().StreamDestroy(streams[1]));
}

// An empty call on a CUDA stream: nobody waits for it.
TEST_F(GpuLaunchTest, TheErrorOfAnEmptyCallIsTold) {
  const spcclComm_t comm = OneRank();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  ASSERT_EQ(spcclAllReduce(nullptr, nullptr, 0, spcclFloat32, spcclSum, comm,
                           reinterpret_cast<spcclStream_t>(stream_)),
            spcclSuccess);
  while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();
  EXPECT_EQ(HealthOf(comm), spcclInvalidUsage);
  EXPECT_THAT(LastError(comm), HasSubstr("ranks disagree"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, CallsThatTheDriverRefusesKeepNoSlots) {
  const spcclComm_t comm = OneRank();
  void* const send = NewBuffer(3);
  void* const recv = NewBuffer(0);
  for (uint32_t i = 0; i < shm::kEagerSlots + 10; ++i) {
    Fake().Fail("cuStreamWriteValue32_v2", 1, cuda::kErrorNotSupported);
    ASSERT_EQ(Copy(send, recv, comm), spcclUnhandledCudaError);
  }
  ASSERT_EQ(Copy(send, recv, comm), spcclSuccess) << LastError();
  EXPECT_TRUE(Holds(recv, 3));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, CapturesThatTheDriverRefusesKeepNoSlots) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  cuda::Graph graph = nullptr;
  gpu_.Must(gpu_.driver().StreamBeginCapture(stream_, cuda::kStreamCaptureModeGlobal));
  for (uint32_t i = 0; i < shm::kCapturedSlots; ++i) {
    Fake().Fail("cuUserObjectCreate", 1, cuda::kErrorNotSupported);
    ASSERT_EQ(Copy(memory, memory, comm), spcclUnhandledCudaError);
  }
  EXPECT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  gpu_.Must(gpu_.driver().StreamEndCapture(stream_, &graph));
  gpu_.Must(gpu_.driver().GraphDestroy(graph));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, AnAbortedCopysSlotIsNotUsedBeforeItsStreamHasPassed) {
  daemon_.Refuse(RequestType::kRegisterCuda, shm::Result::kInvalidUsage, "no GPU here");
  const spcclComm_t aborted = OneRank();
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  std::atomic<bool> may_go{false};
  const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
  gpu_.Must(gpu_.driver().LaunchHostFunc(stream_, wait, &may_go));
  EXPECT_EQ(Copy(memory, memory, aborted), spcclSuccess) << LastError();
  EXPECT_EQ(spcclCommAbort(aborted), spcclSuccess);
  // Had it the same slot, the late host function would set its word back.
  const cuda::Stream other = gpu_.NewStream();
  EXPECT_EQ(spcclAllReduce(memory, memory, kCount, spcclFloat32, spcclSum, comm,
                           reinterpret_cast<spcclStream_t>(other)),
            spcclSuccess);
  gpu_.Synchronize(other);
  may_go = true;
  may_go.notify_all();
  gpu_.Synchronize(stream_);
  const std::vector<shm::Submission> seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].order_slot, 2u);
  gpu_.Must(gpu_.driver().StreamDestroy(other));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, TheDaemonsDeathLetsAllStreamsGoOn) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.HoldOperations(true);
  for (int i = 0; i < 100; ++i) {  // more than may be submitted at a time
    ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  }
  ASSERT_TRUE(daemon_.AwaitSubmissions(1));
  daemon_.Kill();
  gpu_.Synchronize(stream_);
  EXPECT_EQ(HealthOf(comm), spcclSystemError);
  EXPECT_THAT(LastError(comm), HasSubstr("has gone"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  // A new daemon, a new session: the same memory once more.
  daemon_.HoldOperations(false);
  daemon_.Restart();
  const spcclComm_t next = OneRank();
  void* const recv = NewBuffer(0);
  ASSERT_EQ(Copy(memory, recv, next), spcclSuccess) << LastError();
  EXPECT_TRUE(Holds(recv, 1));
  EXPECT_EQ(spcclCommDestroy(next), spcclSuccess);
}

// Of an error it tells before it lets the stream go on.
TEST_F(GpuLaunchTest, ADaemonThatDiesAsItTellsAnErrorHoldsNoStream) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  daemon_.OmitDone();
  ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();  // takes the completion
  EXPECT_TRUE(IsBusy());
  daemon_.Kill();
  gpu_.Synchronize(stream_);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, ADaemonThatDiesAsItTellsAnErrorHoldsNoGraph) {
  const spcclComm_t comm = OneRank();
  const cuda::Driver& driver = gpu_.driver();
  void* const memory = NewBuffer();
  gpu_.Must(driver.StreamBeginCapture(stream_, cuda::kStreamCaptureModeGlobal));
  ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  gpu_.Must(driver.StreamEndCapture(stream_, &graph));
  gpu_.Must(driver.GraphInstantiate(&exec, graph, 0));
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  daemon_.OmitDone();
  gpu_.Must(driver.GraphLaunch(exec, stream_));
  while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();
  EXPECT_TRUE(IsBusy());
  daemon_.Kill();
  gpu_.Synchronize(stream_);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  gpu_.Must(driver.GraphExecDestroy(exec));
  gpu_.Must(driver.GraphDestroy(graph));
}

// The one thread is then that of a call for which there is no room before the others' have run.
TEST_F(GpuLaunchTest, CopiesOfTwoStreamsGetOnWhereHostFunctionsFollowEachOther) {
  daemon_.Refuse(RequestType::kRegisterCuda, shm::Result::kInvalidUsage, "no GPU here");
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer(2);
  void* const last = NewBuffer(3);
  std::atomic<bool> may_go{false};
  const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
  const uint64_t before = Fake().HostFunctions();
  Fake().OneHostFunctionAtATime(1);
  gpu_.Must(Fake().Launch(stream_, wait, &may_go, nullptr));
  for (int i = 0; i < 63; ++i) ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  // As many as may be submitted at a time, with one that is not the GPU's.
  spcclStream_t host_stream = nullptr;
  ASSERT_EQ(spcclStreamCreate(&host_stream), spcclSuccess);
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  ASSERT_EQ(Sum(send, &recv, comm, host_stream), spcclSuccess);
  const cuda::Stream other = gpu_.NewStream();
  ASSERT_EQ(spcclAllReduce(last, last, kCount, spcclFloat32, spcclSum, comm,
                           reinterpret_cast<spcclStream_t>(other)),
            spcclSuccess);
  while (Fake().HostFunctions() == before) std::this_thread::yield();
  may_go = true;
  may_go.notify_all();
  gpu_.Synchronize(other);
  EXPECT_TRUE(Holds(memory, 2));
  EXPECT_TRUE(Holds(last, 3));
  EXPECT_EQ(spcclStreamSynchronize(host_stream), spcclSuccess);
  EXPECT_EQ(recv, send);
  Fake().OneHostFunctionAtATime(0);
  EXPECT_EQ(spcclStreamDestroy(host_stream), spcclSuccess);
  gpu_.Must(gpu_.driver().StreamDestroy(other));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, TheFirstCommunicatorDisturbsNobodysCapture) {
  const cuda::Driver& driver = gpu_.driver();
  void* const memory = NewBuffer();
  gpu_.Must(driver.StreamBeginCapture(stream_, cuda::kStreamCaptureModeGlobal));
  spcclComm_t comm = nullptr;
  void* handle = nullptr;
  std::thread([&] {
    gpu_.Must(driver.CtxSetCurrent(gpu_.context()));
    comm = OneRank();
    ASSERT_EQ(spcclCommRegister(comm, memory, kBytes, &handle), spcclSuccess) << LastError();
  }).join();
  cuda::Graph graph = nullptr;
  gpu_.Must(driver.StreamEndCapture(stream_, &graph));
  gpu_.Must(driver.GraphDestroy(graph));
  EXPECT_EQ(spcclCommDeregister(comm, handle), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, ADaemonThatBreaksTheProtocolHoldsNoStream) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.HoldOperations(true);
  ASSERT_EQ(Copy(memory, memory, comm), spcclSuccess) << LastError();
  ASSERT_TRUE(daemon_.AwaitSubmissions(1));
  daemon_.CorruptCompletionTail();
  EXPECT_EQ(HealthOf(comm), spcclInternalError);  // looks at the completions
  gpu_.Synchronize(stream_);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, AnOlderDaemonTakesNoGpuMemory) {
  daemon_.SetMinor(0);
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  EXPECT_EQ(Copy(memory, memory, comm), spcclInvalidUsage);
  EXPECT_THAT(LastError(comm), HasSubstr("older than this library"));
  void* handle = nullptr;
  EXPECT_EQ(spcclCommRegister(comm, memory, kBytes, &handle), spcclInvalidUsage);
  // It would end the session.
  EXPECT_EQ(daemon_.Requests(RequestType::kRegisterCuda), 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, ACapturedCallIsSubmittedByEachReplay) {
  const spcclComm_t comm = OneRank();
  const cuda::Driver& driver = gpu_.driver();
  void* const send = NewBuffer(1);
  void* const recv = NewBuffer(0);
  gpu_.Must(driver.StreamBeginCapture(stream_, cuda::kStreamCaptureModeGlobal));
  ASSERT_EQ(Copy(send, recv, comm), spcclSuccess) << LastError();
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  gpu_.Must(driver.StreamEndCapture(stream_, &graph));
  gpu_.Must(driver.GraphInstantiate(&exec, graph, 0));
  EXPECT_TRUE(daemon_.submissions().empty());
  for (int round = 1; round <= 3; ++round) {
    gpu_.Upload(std::vector<float>(kCount, static_cast<float>(round)), send, stream_);
    gpu_.Must(driver.GraphLaunch(exec, stream_));
    EXPECT_TRUE(Holds(recv, static_cast<float>(round)));
  }
  const std::vector<shm::Submission> seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), 3u);
  for (int round = 0; round < 3; ++round) {
    EXPECT_GT(seen[round].order_slot, shm::kEagerSlots);
    EXPECT_EQ(seen[round].order_slot, seen[0].order_slot);
    EXPECT_EQ(seen[round].order_value, 1u);
    EXPECT_EQ(seen[round].sequence, static_cast<uint64_t>(round));
  }
  // A replay without its communicator moves nothing and hangs nobody.
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  gpu_.Must(driver.GraphLaunch(exec, stream_));
  gpu_.Synchronize(stream_);
  gpu_.Must(driver.GraphExecDestroy(exec));
  gpu_.Must(driver.GraphDestroy(graph));
}

TEST_F(GpuLaunchTest, MoreThanThereIsAtThePointerIsRefused) {
  const spcclComm_t comm = OneRank();
  void* const memory = gpu_.Allocate(kBytes / 2);
  EXPECT_EQ(Copy(memory, memory, comm), spcclInvalidArgument);
  EXPECT_THAT(LastError(comm), HasSubstr("past the end"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, WhereTheDriverFailsMemoryIsNotTakenForTheHosts) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  Fake().Fail("cuPointerGetAttribute", 1, cuda::kErrorIllegalAddress);
  EXPECT_EQ(Copy(memory, memory, comm), spcclUnhandledCudaError);
  EXPECT_THAT(LastError(comm), HasSubstr("asking whose memory a buffer is: CUDA_ERROR_ILLEGAL"));
  EXPECT_EQ(HealthOf(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GpuLaunchTest, APointerBetweenElementsIsRefused) {
  ExpectPointersBetweenElementsAreRefused();
}

TEST_F(GpuLaunchTest, APointerBetweenElementsIsRefusedWhereMemoryIsCopied) {
  daemon_.Refuse(RequestType::kRegisterCuda, shm::Result::kInvalidUsage, "no GPU here");
  ExpectPointersBetweenElementsAreRefused();
}

TEST_F(GpuLaunchTest, AStreamOfTheLibraryIsNoneOfTheGpus) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  spcclStream_t stream = nullptr;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  const auto call = [&] {
    return spcclAllReduce(memory, memory, kCount, spcclFloat32, spcclSum, comm, stream);
  };
  EXPECT_EQ(call(), spcclInvalidArgument);
  EXPECT_THAT(LastError(comm), HasSubstr("the stream is one of spcclStreamCreate"));
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(call(), spcclInvalidArgument);  // nothing is looked for behind what was a handle
  EXPECT_EQ(HealthOf(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

}  // namespace
}  // namespace spccl::testing
