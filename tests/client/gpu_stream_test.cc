// What lets streams go on, whoever fails, and whoever is ahead.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "proto/shm/order.h"
#include "proto/shm/session.h"
#include "tests/client/gpu_launch_fixture.h"

namespace spccl::testing {
namespace {

using shm::RequestType;
using ::testing::HasSubstr;

class GpuStreamTest : public GpuLaunchTest {
 protected:
  void ExpectARankThatIsFarAheadHoldsNobodyUp(bool ahead_first) {
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
    constexpr int kAhead = shm::kEagerSlots / 2 - 1;
    daemon_.HoldOperations(true);
    for (int i = 0; i < kAhead; ++i) call(1);
    std::thread alone([&] { call(1); });
    std::thread grouped([&] {
      EXPECT_EQ(spcclGroupStart(), spcclSuccess);
      for (const int rank : {0, 1}) call(ahead_first ? 1 - rank : rank);
      EXPECT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
    });
    // As many of rank 1's as may be submitted at a time, and the one of the group that lets them
    // end.
    EXPECT_TRUE(daemon_.AwaitSubmissions(64 + 1));
    daemon_.HoldOperations(false);
    for (int i = 0; i < kAhead + 1; ++i) call(0);
    alone.join();
    grouped.join();
    for (const int rank : {0, 1}) {
      gpu_.Synchronize(streams[rank]);
      EXPECT_EQ(spcclCommDestroy(comms[rank]), spcclSuccess);
    }
    gpu_.Must(gpu_.driver().StreamDestroy(streams[1]));
  }
};

TEST_F(GpuStreamTest, AFailedOperationFailsTheCommunicatorAndLetsTheStreamGoOn) {
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

TEST_F(GpuStreamTest, SlotsAreUsedAgainAfterErrorsToo) {
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
TEST_F(GpuStreamTest, ARankThatIsFarAheadHoldsNobodyUp) {
  for (const bool ahead_first : {false, true}) {
    SCOPED_TRACE(ahead_first);
    ExpectARankThatIsFarAheadHoldsNobodyUp(ahead_first);
  }
}

// That the other rank will not call.
TEST_F(GpuStreamTest, AFailedCommunicatorIsDestroyedThoughAnOperationWaits) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess) << LastError();
  const cuda::Stream other = gpu_.NewStream();
  void* const memory = NewBuffer();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(spcclAllReduce(memory, memory, kCount, spcclFloat32, spcclSum, comms[1],
                             reinterpret_cast<spcclStream_t>(other)),
              spcclSuccess);
  }
  EXPECT_EQ(Copy(memory, memory, comms[0]), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comms[1]), spcclSuccess) << LastError();
  EXPECT_EQ(spcclCommDestroy(comms[0]), spcclSuccess) << LastError();
  EXPECT_EQ(daemon_.Requests(RequestType::kCommAbort), 1u);
  gpu_.Synchronize(other);
  gpu_.Must(gpu_.driver().StreamDestroy(other));
}

// Whose operations have ended on this rank leaves, and the others are told what they would be.
TEST_F(GpuStreamTest, AFailedCommunicatorWithNothingOutstandingIsLeft) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  EXPECT_EQ(Copy(memory, memory, comm), spcclSuccess);
  while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(daemon_.Requests(RequestType::kCommDestroy), 1u);
  EXPECT_EQ(daemon_.Requests(RequestType::kCommAbort), 0u);
}

// What could not be submitted after an error has left the communicator for the program.
TEST_F(GpuStreamTest, AbortIsDoneWhereAnOperationHasLeft) {
  const spcclComm_t comm = OneRank();
  void* const memory = NewBuffer();
  daemon_.HoldOperations(true);
  daemon_.FailOperations(shm::Result::kRemoteError, "rank 3 (pid 77) died");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Copy(memory, memory, comm), spcclSuccess) << i;
  EXPECT_TRUE(daemon_.AwaitSubmissions(64));
  daemon_.HoldOperations(false);
  EXPECT_TRUE(daemon_.AwaitRequests(RequestType::kCommAbort, 1));
  daemon_.Refuse(RequestType::kCommAbort, shm::Result::kInvalidUsage,
                 "communicator 1 is not one of this process");
  EXPECT_EQ(spcclCommAbort(comm), spcclSuccess) << LastError();
}

// By its buffers it is on a GPU's default stream, or the host's, which waits for the other ranks.
TEST_F(GpuStreamTest, AnEmptyCallIsWhoseItsBuffersAre) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess) << LastError();
  void* const memory = NewBuffer();
  float value = 0;
  const auto call = [&](int rank, void* send, void* recv) {
    return spcclAllReduce(send, recv, 0, spcclFloat32, spcclSum, comms[rank], nullptr);
  };
  EXPECT_EQ(call(0, memory, nullptr), spcclSuccess);
  EXPECT_EQ(call(0, &value, memory), spcclSuccess);
  std::thread waits([&] { EXPECT_EQ(call(0, &value, &value), spcclSuccess); });
  EXPECT_TRUE(daemon_.AwaitSubmissions(3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(1, memory, memory), spcclSuccess);
  waits.join();
  for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

// An empty call on a CUDA stream, also the default one: nobody waits for it.
TEST_F(GpuStreamTest, TheErrorOfAnEmptyCallIsTold) {
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  for (const cuda::Stream stream : {stream_, cuda::Stream{nullptr}}) {
    const spcclComm_t comm = OneRank();
    ASSERT_EQ(spcclAllReduce(nullptr, nullptr, 0, spcclFloat32, spcclSum, comm,
                             reinterpret_cast<spcclStream_t>(stream)),
              spcclSuccess);
    while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();
    EXPECT_EQ(HealthOf(comm), spcclInvalidUsage);
    EXPECT_THAT(LastError(comm), HasSubstr("ranks disagree"));
    EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  }
}

TEST_F(GpuStreamTest, CallsThatTheDriverRefusesKeepNoSlots) {
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

TEST_F(GpuStreamTest, CapturesThatTheDriverRefusesKeepNoSlots) {
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

TEST_F(GpuStreamTest, AnAbortedCopysSlotIsNotUsedBeforeItsStreamHasPassed) {
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

TEST_F(GpuStreamTest, TheDaemonsDeathLetsAllStreamsGoOn) {
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
TEST_F(GpuStreamTest, ADaemonThatDiesAsItTellsAnErrorHoldsNoStream) {
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

TEST_F(GpuStreamTest, ADaemonThatDiesAsItTellsAnErrorHoldsNoGraph) {
  const spcclComm_t comm = OneRank();
  const cuda::Driver& driver = gpu_.driver();
  void* const memory = NewBuffer();
  const cuda::GraphExec exec = CaptureCopy(memory, memory, comm);
  daemon_.FailOperations(shm::Result::kInvalidUsage, "ranks disagree");
  daemon_.OmitDone();
  gpu_.Must(driver.GraphLaunch(exec, stream_));
  while (HealthOf(comm) == spcclSuccess) std::this_thread::yield();
  EXPECT_TRUE(IsBusy());
  daemon_.Kill();
  gpu_.Synchronize(stream_);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  gpu_.Must(driver.GraphExecDestroy(exec));
}

// The one thread is then that of a call for which there is no room before the others' have run.
TEST_F(GpuStreamTest, CopiesOfTwoStreamsGetOnWhereHostFunctionsFollowEachOther) {
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

TEST_F(GpuStreamTest, ADaemonThatBreaksTheProtocolHoldsNoStream) {
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

}  // namespace
}  // namespace spccl::testing
