#include "client/gpu_launch.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/shm/order.h"
#include "proto/shm/session.h"
#include "tests/client/gpu_launch_fixture.h"

namespace spccl::testing {
namespace {

using shm::RequestType;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
  const cuda::GraphExec exec = CaptureCopy(send, recv, comm);
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

TEST_F(GpuLaunchTest, HostMemoryTakesNoStreamOfCuda) {
  const spcclComm_t comm = OneRank();
  float value = 1;
  EXPECT_EQ(spcclAllReduce(&value, &value, 1, spcclFloat32, spcclSum, comm,
                           reinterpret_cast<spcclStream_t>(stream_)),
            spcclInvalidArgument);
  EXPECT_THAT(LastError(comm),
              HasSubstr("host memory takes such a one, or NULL, and the buffers are no "
                        "memory of a GPU"));
  EXPECT_EQ(HealthOf(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
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
