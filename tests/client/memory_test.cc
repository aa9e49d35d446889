#include "client/memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/process.h"
#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

class MemoryTest : public testing::ClientTest {};

TEST_F(MemoryTest, AllocationsAreZeroAlignedAndWritable) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
    void* memory = nullptr;
    ASSERT_EQ(spcclMemAlloc(&memory, size), spcclSuccess) << LastError();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    auto* bytes = static_cast<char*>(memory);
    EXPECT_EQ(std::count(bytes, bytes + size, 0), static_cast<ptrdiff_t>(size));
    std::fill(bytes, bytes + size, 1);
    EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  }
}

TEST_F(MemoryTest, NothingIsNull) {
  void* memory = &memory;
  EXPECT_EQ(spcclMemAlloc(&memory, 0), spcclSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(spcclMemFree(nullptr), spcclSuccess);
  EXPECT_EQ(spcclMemAlloc(nullptr, 8), spcclInvalidArgument);
}

TEST_F(MemoryTest, RefusesMoreThanThereCanBe) {
  void* memory = nullptr;
  for (const size_t size : {SIZE_MAX, SIZE_MAX - 5000, size_t{PTRDIFF_MAX}, size_t{1} << 60}) {
    EXPECT_NE(spcclMemAlloc(&memory, size), spcclSuccess) << size;
    EXPECT_EQ(memory, nullptr);
  }
}

TEST_F(MemoryTest, FreesOnlyTheStartOfItsOwnOnce) {
  void* memory = nullptr;
  ASSERT_EQ(spcclMemAlloc(&memory, 8192), spcclSuccess);
  int local;
  EXPECT_EQ(spcclMemFree(&local), spcclInvalidArgument);
  EXPECT_EQ(spcclMemFree(static_cast<char*>(memory) + 4096), spcclInvalidArgument);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("spcclMemFree"));
}

TEST_F(MemoryTest, ARangePastTheEndIsRefused) {
  const spcclComm_t comm = OneRank();
  void* memory = nullptr;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  auto* values = static_cast<float*>(memory);
  EXPECT_EQ(spcclAllReduce(values + 1, values + 1, 1024, spcclFloat, spcclSum, comm, nullptr),
            spcclInvalidArgument);
  EXPECT_THAT(LastError(comm), HasSubstr("past the end"));
  EXPECT_EQ(spcclAllReduce(values, values, 1024, spcclFloat, spcclSum, comm, nullptr),
            spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
}

TEST_F(MemoryTest, IsRegisteredAtItsFirstUseAndTakenBackWhenFreed) {
  const spcclComm_t comm = OneRank();
  void* memory = nullptr;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterMemfd), 0u);
  auto* values = static_cast<int32_t*>(memory);
  values[3] = 42;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(spcclAllReduce(values + 3, values + 9, 1, spcclInt, spcclSum, comm, nullptr),
              spcclSuccess);
  }
  EXPECT_EQ(values[9], 42);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterMemfd), 1u);
  EXPECT_NE(daemon_.submissions()[0].send.buffer_id, shm::kRawAddress);
  EXPECT_EQ(daemon_.submissions()[0].send.offset, 12u);
  EXPECT_EQ(daemon_.submissions()[0].recv.offset, 36u);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kDeregister), 1u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(MemoryTest, IsNotFreedUnderAnOperation) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  void* memory = nullptr;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  daemon_.HoldOperations(true);
  ASSERT_EQ(spcclAllReduce(memory, memory, 4, spcclFloat, spcclSum, comm, stream), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclInvalidUsage);
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(MemoryTest, RegistrationsAreCounted) {
  const spcclComm_t comm = OneRank();
  void* memory = nullptr;
  ASSERT_EQ(spcclMemAlloc(&memory, 8192), spcclSuccess);
  void *one, *two;
  ASSERT_EQ(spcclCommRegister(comm, memory, 8192, &one), spcclSuccess);
  ASSERT_EQ(spcclCommRegister(comm, static_cast<char*>(memory) + 4096, 4096, &two), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterMemfd), 1u);
  EXPECT_EQ(spcclMemFree(memory), spcclInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("still registered, 2 times"));
  EXPECT_EQ(spcclCommDeregister(comm, one), spcclSuccess);
  EXPECT_EQ(spcclCommDeregister(comm, one), spcclInvalidUsage);
  EXPECT_EQ(spcclMemFree(memory), spcclInvalidUsage);
  EXPECT_EQ(spcclCommDeregister(comm, two), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(MemoryTest, OrdinaryMemoryIsRegisteredByAddress) {
  const spcclComm_t comm = OneRank();
  std::vector<float> values = Rising(100), other(100);
  void *handle, *again;
  ASSERT_EQ(spcclCommRegister(comm, values.data(), 400, &handle), spcclSuccess);
  ASSERT_EQ(spcclCommRegister(comm, values.data(), 400, &again), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterAddress), 1u);
  daemon_.HoldOperations(true);
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  EXPECT_EQ(spcclAllReduce(values.data() + 2, other.data(), 98, spcclFloat, spcclSum, comm, stream),
            spcclSuccess);
  ASSERT_TRUE(daemon_.AwaitSubmissions(1));
  const shm::Submission seen = daemon_.submissions()[0];
  EXPECT_NE(seen.send.buffer_id, shm::kRawAddress);
  EXPECT_EQ(seen.send.offset, 8u);
  EXPECT_EQ(seen.recv.buffer_id, shm::kRawAddress);
  EXPECT_EQ(seen.recv.offset, reinterpret_cast<uint64_t>(other.data()));
  EXPECT_EQ(spcclCommDeregister(comm, handle), spcclInvalidUsage);
  // The scripted daemon moves no data of registered addresses: end it instead.
  EXPECT_EQ(spcclCommAbort(comm), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclRemoteError);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kDeregister), 1u);
}

TEST_F(MemoryTest, RegisteringChecksItsArguments) {
  const spcclComm_t comm = OneRank();
  const spcclComm_t other = OneRank();
  float value;
  void* handle;
  EXPECT_EQ(spcclCommRegister(comm, nullptr, 4, &handle), spcclInvalidArgument);
  EXPECT_EQ(spcclCommRegister(comm, &value, 0, &handle), spcclInvalidArgument);
  EXPECT_EQ(spcclCommRegister(comm, &value, 4, nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommRegister(comm, reinterpret_cast<void*>(4096), 4, &handle),
            spcclInvalidArgument);
  EXPECT_EQ(spcclCommRegister(comm, &value, SIZE_MAX, &handle), spcclInvalidArgument);
  EXPECT_EQ(spcclCommRegister(comm, &value, 4, &handle), spcclSuccess);
  EXPECT_EQ(spcclCommDeregister(other, handle), spcclInvalidUsage);
  EXPECT_EQ(spcclCommDeregister(comm, comm), spcclInvalidArgument);
  EXPECT_EQ(spcclCommDeregister(comm, nullptr), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);  // and the registration with it
  EXPECT_EQ(spcclCommDestroy(other), spcclSuccess);
}

TEST_F(MemoryTest, DestroyingACommunicatorGivesItsRegistrationsBack) {
  const spcclComm_t comm = OneRank();
  void *memory, *handle;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  ASSERT_EQ(spcclCommRegister(comm, memory, 4096, &handle), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
}

TEST_F(MemoryTest, StagingBuffersAreReusedAndBounded) {
  StagingPool pool;
  auto small = pool.Take(10).value();
  EXPECT_GE(small->size_bytes(), 10u);
  const std::byte* data = small->data();
  pool.GiveBack(std::move(small));
  EXPECT_GT(pool.kept_bytes(), 0u);
  auto again = pool.Take(20).value();
  EXPECT_EQ(again->data(), data);
  EXPECT_EQ(pool.kept_bytes(), 0u);
  auto large = pool.Take(StagingPool::kKeptBytes / 2 + 1).value();
  pool.GiveBack(std::move(again));
  const size_t kept = pool.kept_bytes();
  pool.GiveBack(
      std::move(large));  // rounded up it is all that may be kept: too much beside the other
  EXPECT_EQ(pool.kept_bytes(), kept);
}

}  // namespace
}  // namespace spccl::client
