// How an operation's memory is named and copied, and that it ends exactly once.
#include "client/operation.h"

#include <thread>
#include <vector>

#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

class OperationTest : public testing::ClientTest {};

TEST_F(OperationTest, TheSlotSaysWhatTheCallSaid) {
  const spcclComm_t comm = OneRank();
  std::vector<double> send(7), recv(7);
  EXPECT_EQ(spcclReduceScatter(send.data(), recv.data(), 7, spcclDouble, spcclMax, comm, nullptr),
            spcclSuccess);
  EXPECT_EQ(spcclBroadcast(send.data(), recv.data(), 7, spcclDouble, 0, comm, nullptr),
            spcclSuccess);
  const auto seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].op, static_cast<uint8_t>(OpCode::kReduceScatter));
  EXPECT_EQ(seen[0].dtype, spcclDouble);
  EXPECT_EQ(seen[0].redop, spcclMax);
  EXPECT_EQ(seen[0].count, 7u);
  EXPECT_EQ(seen[0].sequence, 0u);
  EXPECT_EQ(seen[0].send.buffer_id, shm::kRawAddress);
  EXPECT_EQ(seen[0].send.offset, reinterpret_cast<uint64_t>(send.data()));
  EXPECT_EQ(seen[1].sequence, 1u);
  EXPECT_EQ(seen[1].redop, 0);
  EXPECT_NE(seen[0].ticket, seen[1].ticket);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, ADaemonThatIsAwakeIsNotRungFor) {
  const spcclComm_t comm = OneRank();
  std::vector<float> values = Rising(4);
  EXPECT_EQ(Sum(values, &values, comm), spcclSuccess);
  const uint64_t rings = daemon_.rings();
  EXPECT_EQ(rings, 1u);
  daemon_.StayAwake();
  EXPECT_EQ(Sum(values, &values, comm), spcclSuccess);
  EXPECT_EQ(daemon_.rings(), rings);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, NothingIsSubmittedToo) {
  const spcclComm_t comm = OneRank();
  EXPECT_EQ(spcclAllReduce(nullptr, nullptr, 0, spcclFloat, spcclSum, comm, nullptr), spcclSuccess);
  ASSERT_EQ(daemon_.submissions().size(), 1u);
  EXPECT_EQ(daemon_.submissions()[0].count, 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, ARefusedCallLeavesNoGapInTheOrder) {
  const spcclComm_t comm = OneRank();
  float value = 1;
  EXPECT_EQ(spcclAllReduce(nullptr, &value, 1, spcclFloat, spcclSum, comm, nullptr),
            spcclInvalidArgument);
  EXPECT_EQ(
      spcclAllReduce(&value, &value, 1, static_cast<spcclDataType_t>(12), spcclSum, comm, nullptr),
      spcclInvalidArgument);
  EXPECT_EQ(
      spcclAllReduce(&value, &value, 1, spcclFloat, static_cast<spcclRedOp_t>(6), comm, nullptr),
      spcclInvalidArgument);
  EXPECT_EQ(spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, comm, nullptr), spcclSuccess);
  ASSERT_EQ(daemon_.submissions().size(), 1u);
  EXPECT_EQ(daemon_.submissions()[0].sequence, 0u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, MemoryOutOfTheDaemonsReachIsCopied) {
  daemon_.SetAttach(false);
  const spcclComm_t comm = OneRank();
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{100'000}}) {
    std::vector<float> send = Rising(count), recv(count);
    EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess) << LastError();
    EXPECT_EQ(recv, send);
    std::vector<float> in_place = Rising(count);
    EXPECT_EQ(Sum(in_place, &in_place, comm), spcclSuccess);
    EXPECT_EQ(in_place, send);
  }
  for (const auto& submission : daemon_.submissions()) {
    EXPECT_NE(submission.send.buffer_id, shm::kRawAddress);
    EXPECT_NE(submission.recv.buffer_id, shm::kRawAddress);
  }
  // In place stays in place.
  EXPECT_NE(daemon_.submissions()[0].send.offset, daemon_.submissions()[0].recv.offset);
  EXPECT_EQ(daemon_.submissions()[1].send.offset, daemon_.submissions()[1].recv.offset);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, OnlyTheSideThatNeedsItIsCopied) {
  daemon_.SetAttach(false);
  const spcclComm_t comm = OneRank();
  void* memory;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  auto* shared = static_cast<float*>(memory);
  std::vector<float> values = Rising(16);
  EXPECT_EQ(spcclAllReduce(values.data(), shared, 16, spcclFloat, spcclSum, comm, nullptr),
            spcclSuccess);
  EXPECT_EQ(std::vector<float>(shared, shared + 16), values);
  std::vector<float> back(16);
  EXPECT_EQ(spcclAllReduce(shared, back.data(), 16, spcclFloat, spcclSum, comm, nullptr),
            spcclSuccess);
  EXPECT_EQ(back, values);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
}

TEST_F(OperationTest, StagingCanBeForced) {
  ::setenv("SPCCL_FORCE_STAGING", "1", 1);
  const spcclComm_t comm = OneRank();
  ::unsetenv("SPCCL_FORCE_STAGING");
  std::vector<float> send = Rising(16), recv(16);
  void* handle;
  EXPECT_EQ(spcclCommRegister(comm, send.data(), 64, &handle), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(recv, send);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kHandOverMemory), 0u);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kRegisterAddress), 0u);
  EXPECT_NE(daemon_.submissions()[0].send.buffer_id, shm::kRawAddress);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, AFailedOperationGivesTheDaemonsWords) {
  const spcclComm_t comm = OneRank();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "rank 0 said sum, rank 1 said max");
  std::vector<float> send = Rising(16), recv(16);
  EXPECT_EQ(Sum(send, &recv, comm), spcclInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("rank 0 said sum, rank 1 said max"));
  EXPECT_THAT(LastError(comm), HasSubstr("spcclAllReduce"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, AFailedStagedOperationGivesTheDaemonsWords) {
  daemon_.SetAttach(false);
  const spcclComm_t comm = OneRank();
  daemon_.FailOperations(shm::Result::kRemoteError, "rank 1 died");
  std::vector<float> send = Rising(16), recv(16);
  EXPECT_EQ(Sum(send, &recv, comm), spcclRemoteError);
  EXPECT_EQ(recv, std::vector<float>(16));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, MoreThanTheRingsHoldIsNoError) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  constexpr size_t kCount = 1000;
  const std::vector<float> send = Rising(kCount);
  std::vector<float> recv(kCount);
  daemon_.HoldOperations(true);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(spcclAllReduce(&send[i], &recv[i], 1, spcclFloat, spcclSum, comm, stream),
              spcclSuccess);
  }
  EXPECT_EQ(spcclStreamQuery(stream), spcclInProgress);
  ASSERT_TRUE(daemon_.AwaitSubmissions(64));
  EXPECT_EQ(daemon_.submissions().size(), 64u);
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(recv, send);
  const auto seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), kCount);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(seen[i].sequence, i);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(OperationTest, ThreadsMayShareACommunicator) {
  const spcclComm_t comm = OneRank();
  std::vector<std::thread> threads;
  std::vector<int> failures(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 100; ++i) {
        const std::vector<float> send = Rising(50);
        std::vector<float> recv(50);
        if (Sum(send, &recv, comm) != spcclSuccess || recv != send) ++failures[thread];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(failures, ::testing::Each(0));
  EXPECT_EQ(daemon_.submissions().size(), 400u);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

}  // namespace
}  // namespace spccl::client
