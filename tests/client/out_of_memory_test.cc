// Each allocation in turn is refused, once: a call may then fail, and nothing else may be wrong.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/error.h"
#include "client/handle_table.h"
#include "tests/client/client_test.h"
#include "tests/client/refused_memory.h"

namespace spccl::client {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t kCount = 1000;

class OutOfMemoryTest : public testing::RefusedMemoryTest<testing::ClientTest> {
 protected:
  // What was there before makes no difference to new communicators, and the calls of old groups are
  // not made again.
  void ExpectAllWorks() {
    const size_t before = daemon_.submissions().size();
    spcclComm_t comms[2];
    ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess) << LastError();
    std::vector<float> send = Rising(8), recv(8);
    ASSERT_EQ(spcclGroupStart(), spcclSuccess);
    for (const spcclComm_t comm : comms) EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
    EXPECT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
    EXPECT_EQ(daemon_.submissions().size(), before + 2);
    for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }

  int RunOnTheStreamsThread();

  // A daemon would wait for an operation that is missing in a communicator's order.
  void ExpectNoGaps() {
    std::map<uint32_t, uint64_t> next;
    for (const shm::Submission& submission : daemon_.submissions()) {
      EXPECT_EQ(submission.sequence, next[submission.comm_id]++) << submission.comm_id;
    }
  }

  static void* Memory() {
    void* memory = nullptr;
    EXPECT_EQ(spcclMemAlloc(&memory, kCount * sizeof(float)), spcclSuccess);
    return memory;
  }
};

TEST_F(OutOfMemoryTest, JoiningLeavesNothing) {
  RefuseEach([&] {
    spcclComm_t comms[2] = {};
    const spcclResult_t made = Refusing([&] { return spcclCommInitAll(comms, 2, nullptr); });
    if (made == spcclSuccess) {
      for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    }
    ExpectAllWorks();
  });
}

TEST_F(OutOfMemoryTest, WhatAGroupCollectsIsAllOrNothing) {
  RefuseEach([&] {
    spcclComm_t comms[2];
    ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
    std::vector<float> send = Rising(8), recv(8);
    const size_t before = daemon_.submissions().size();
    ASSERT_EQ(spcclGroupStart(), spcclSuccess);
    EXPECT_EQ(Sum(send, &recv, comms[0]), spcclSuccess);
    const spcclResult_t called = Refusing([&] { return Sum(send, &recv, comms[1]); });
    EXPECT_EQ(spcclGroupEnd(), called) << LastError();
    EXPECT_EQ(daemon_.submissions().size(), before + (called == spcclSuccess ? 2 : 0));
    for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    ExpectAllWorks();
  });
}

TEST_F(OutOfMemoryTest, AGroupsEndLeavesNothingToTheNext) {
  RefuseEach([&] {
    spcclComm_t comms[2];
    ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
    void* const memory[2] = {Memory(), Memory()};
    ASSERT_EQ(spcclGroupStart(), spcclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(spcclAllReduce(memory[rank], memory[rank], kCount, spcclFloat, spcclSum,
                               comms[rank], nullptr),
                spcclSuccess);
    }
    (void)Refusing([] { return spcclGroupEnd(); });
    ExpectAllWorks();
    for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    for (void* each : memory) EXPECT_EQ(spcclMemFree(each), spcclSuccess) << LastError();
  });
}

// Copies in a group need a thread: where there is none for one rank, the other ends, too.
TEST_F(OutOfMemoryTest, AGroupsEndTellsTheCause) {
  daemon_.SetAttach(false);
  for (const bool on_streams : {false, true}) {
    s_number = 0;
    RefuseEach([&] {
      spcclComm_t comms[2];
      ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
      spcclStream_t streams[2] = {};
      if (on_streams) {
        for (spcclStream_t& stream : streams) ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
      }
      std::vector<float> send = Rising(8), recv[2] = {Rising(8), Rising(8)};
      ASSERT_EQ(spcclGroupStart(), spcclSuccess);
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(Sum(send, &recv[rank], comms[rank], streams[rank]), spcclSuccess);
      }
      const spcclResult_t ended = Refusing([] { return spcclGroupEnd(); });
      if (ended != spcclSuccess) {
        EXPECT_THAT(LastError(), HasSubstr("refused memory"));
      }
      for (const spcclStream_t stream : streams) {
        if (stream != nullptr) (void)spcclStreamDestroy(stream);
      }
      for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
      ExpectAllWorks();
    });
  }
}

TEST_F(OutOfMemoryTest, ACallOnAStreamIsMadeOrNot) {
  // A queue takes memory with every so many calls only.
  for (const int earlier : {0, 15, 31}) {
    s_number = 0;
    RefuseEach([&] {
      const spcclComm_t comm = OneRank();
      spcclStream_t stream;
      ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
      std::vector<float> send = Rising(8), first(8), second(8);
      for (int call = 0; call < earlier; ++call) {
        EXPECT_EQ(Sum(send, &second, comm, stream), spcclSuccess);
      }
      EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
      std::ranges::fill(second, 0.0f);
      const spcclResult_t called = Refusing([&] { return Sum(send, &first, comm, stream); });
      const spcclResult_t after = Sum(send, &second, comm, stream);
      const spcclResult_t waited = spcclStreamSynchronize(stream);
      EXPECT_THAT(waited, AnyOf(spcclSuccess, spcclSystemError));
      EXPECT_EQ(after == spcclSuccess && waited == spcclSuccess, second == send);
      EXPECT_EQ(called == spcclSuccess && waited == spcclSuccess, first == send);
      EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
      EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
      ExpectNoGaps();
      ExpectAllWorks();
    });
  }
}

// An operation behind another communicator's is the stream's thread's to run, in copies as here.
TEST_F(OutOfMemoryTest, ACallThatIsQueuedIsMadeOrNot) {
  daemon_.SetAttach(false);
  RefuseEach([&] {
    const spcclComm_t one = OneRank(), two = OneRank();
    spcclStream_t stream;
    ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
    std::vector<float> send = Rising(8), first(8), second(8);
    EXPECT_EQ(Sum(send, &first, one, stream), spcclSuccess);
    const spcclResult_t called = Refusing([&] { return Sum(send, &second, two, stream); });
    const spcclResult_t waited = spcclStreamSynchronize(stream);
    EXPECT_THAT(waited, AnyOf(spcclSuccess, spcclSystemError));
    EXPECT_EQ(first, send);
    EXPECT_EQ(called == spcclSuccess && waited == spcclSuccess, second == send);
    EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
    for (const spcclComm_t comm : {one, two}) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    ExpectAllWorks();
  });
}

// Returns how many of them have failed.
int OutOfMemoryTest::RunOnTheStreamsThread() {
  int failed = 0;
  for (int number = 0; number < testing::kMostAllocations; ++number) {
    SCOPED_TRACE(number);
    const spcclComm_t comm = OneRank();
    spcclStream_t stream;
    EXPECT_EQ(spcclStreamCreate(&stream), spcclSuccess);
    std::vector<float> send = Rising(kCount), recv(kCount);
    testing::g_threads_left = number;
    EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess) << LastError();
    const spcclResult_t waited = spcclStreamSynchronize(stream);
    const bool is_refused = testing::g_threads_left.exchange(-1) < 0;
    EXPECT_THAT(waited, AnyOf(spcclSuccess, spcclSystemError)) << LastError();
    if (waited == spcclSystemError) {
      ++failed;
      EXPECT_THAT(LastError(), HasSubstr("refused memory"));
    } else {
      EXPECT_EQ(recv, send);
    }
    EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
    ExpectAllWorks();
    if (HasFailure() || !is_refused) return failed;
  }
  ADD_FAILURE() << "more allocations than can be";
  return failed;
}

TEST_F(OutOfMemoryTest, TheStreamsThreadFailsTheOperation) {
  daemon_.SetAttach(false);
  EXPECT_GT(RunOnTheStreamsThread(), 0);
}

TEST_F(OutOfMemoryTest, TheStreamsThreadDoesWithoutARelay) {
  ::setenv("SPCCL_RELAY_BYTES", "1", 1);
  RunOnTheStreamsThread();
  ::unsetenv("SPCCL_RELAY_BYTES");
  EXPECT_GT(daemon_.Requests(shm::RequestType::kCommRelays), 0u);
}

TEST_F(OutOfMemoryTest, ACommunicatorTellsOfThatFailure) {
  RefuseEach([&] {
    const spcclComm_t comm = OneRank();
    EXPECT_EQ(spcclCommGetAsyncError(comm, nullptr), spcclInvalidArgument);
    EXPECT_THAT(LastError(comm), HasSubstr("asyncError is NULL"));
    std::vector<float> send = Rising(8), recv(8);
    if (Refusing([&] { return Sum(send, &recv, comm); }) != spcclSuccess) {
      EXPECT_THAT(LastError(comm), HasSubstr("refused memory"));
    }
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  });
}

TEST_F(OutOfMemoryTest, HandlesAreTakenOutWithoutMemory) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  for (int value = 0; value < 3; ++value) table.Add(std::make_shared<int>(value));
  testing::t_left = 0;
  table.RemoveIf([](int) { return true; });
  const bool none_was_refused = std::exchange(testing::t_left, -1) == 0;
  EXPECT_TRUE(none_was_refused);
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(OutOfMemoryTest, WhatIsRegisteredCanBeFreed) {
  RefuseEach([&] {
    const spcclComm_t comm = OneRank();
    void* const memory = Memory();
    void* handle = nullptr;
    const spcclResult_t registered =
        Refusing([&] { return spcclCommRegister(comm, memory, kCount * sizeof(float), &handle); });
    if (registered == spcclSuccess) {
      EXPECT_EQ(spcclCommDeregister(comm, handle), spcclSuccess) << LastError();
    }
    EXPECT_EQ(spcclMemFree(memory), spcclSuccess) << LastError();
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  });
}

TEST_F(OutOfMemoryTest, MemoryIsFreed) {
  RefuseEach([&] {
    const spcclComm_t comm = OneRank();
    void* const memory = Memory();
    EXPECT_EQ(spcclAllReduce(memory, memory, kCount, spcclFloat, spcclSum, comm, nullptr),
              spcclSuccess);
    if (Refusing([&] { return spcclMemFree(memory); }) != spcclSuccess) {
      EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
    }
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  });
}

TEST_F(OutOfMemoryTest, LeavingCanBeTriedAgain) {
  for (const auto leave : {spcclCommDestroy, spcclCommAbort}) {
    s_number = 0;
    RefuseEach([&] {
      const spcclComm_t comm = OneRank();
      if (Refusing([&] { return leave(comm); }) != spcclSuccess) {
        EXPECT_EQ(leave(comm), spcclSuccess) << LastError();
      }
      EXPECT_EQ(leave(comm), spcclInvalidUsage);
      ExpectAllWorks();
    });
  }
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kCommInit),
            daemon_.Requests(shm::RequestType::kCommDestroy) +
                daemon_.Requests(shm::RequestType::kCommAbort));
}

}  // namespace
}  // namespace spccl::client
