// Communicators: joining, failing, being aborted and destroyed.
#include "client/comm.h"

#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;
using testing::Notice;

class CommTest : public testing::ClientTest {};

TEST_F(CommTest, JoiningChecksItsArguments) {
  spcclUniqueId id;
  ASSERT_EQ(spcclGetUniqueId(&id), spcclSuccess);
  spcclComm_t comm;
  EXPECT_EQ(spcclGetUniqueId(nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommInitRank(nullptr, 1, id, 0), spcclInvalidArgument);
  EXPECT_EQ(spcclCommInitRank(&comm, 0, id, 0), spcclInvalidArgument);
  EXPECT_EQ(spcclCommInitRank(&comm, 2, id, 2), spcclInvalidArgument);
  EXPECT_EQ(spcclCommInitRank(&comm, 2, id, -1), spcclInvalidArgument);
  EXPECT_EQ(spcclCommInitAll(nullptr, 2, nullptr), spcclInvalidArgument);
  for (const int ranks : {0, -1, 257, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(spcclCommInitRank(&comm, ranks, id, 0), spcclInvalidArgument) << ranks;
    EXPECT_EQ(spcclCommInitAll(&comm, ranks, nullptr), spcclInvalidArgument) << ranks;
    EXPECT_THAT(LastError(), HasSubstr("expected 1 to 256"));
  }
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kCommInit), 0u);
}

TEST_F(CommTest, WrongValuesInTheEnvironmentAreRefused) {
  spcclUniqueId id;
  ASSERT_EQ(spcclGetUniqueId(&id), spcclSuccess);
  spcclComm_t comm;
  for (const char* value : {"0", "-5", "10s", "99999999999"}) {
    ::setenv("SPCCL_INIT_TIMEOUT_MS", value, 1);
    EXPECT_EQ(spcclCommInitRank(&comm, 1, id, 0), spcclInvalidArgument) << value;
    EXPECT_THAT(LastError(), HasSubstr(value));
  }
  ::unsetenv("SPCCL_INIT_TIMEOUT_MS");
  const std::string nobody_had_it = "an-algorithm-" + std::string(5000, 'x');
  ::setenv("SPCCL_ALGO", nobody_had_it.c_str(), 1);
  EXPECT_EQ(spcclCommInitRank(&comm, 1, id, 0), spcclInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("SPCCL_ALGO is \"an-algorithm-xx"));
  EXPECT_LT(std::string(LastError()).size(), 200U);
  ::unsetenv("SPCCL_ALGO");
}

TEST_F(CommTest, UniqueIdsDiffer) {
  spcclUniqueId one, two;
  ASSERT_EQ(spcclGetUniqueId(&one), spcclSuccess);
  ASSERT_EQ(spcclGetUniqueId(&two), spcclSuccess);
  EXPECT_NE(std::memcmp(&one, &two, sizeof one), 0);
}

TEST_F(CommTest, ADestroyedHandleIsRefusedEverywhere) {
  const spcclComm_t comm = OneRank();
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  int number;
  spcclResult_t async;
  float value = 0;
  void* handle;
  EXPECT_EQ(spcclCommDestroy(comm), spcclInvalidUsage);
  EXPECT_EQ(spcclCommAbort(comm), spcclInvalidUsage);
  EXPECT_EQ(spcclCommCount(comm, &number), spcclInvalidUsage);
  EXPECT_EQ(spcclCommUserRank(comm, &number), spcclInvalidUsage);
  EXPECT_EQ(spcclCommGetAsyncError(comm, &async), spcclInvalidUsage);
  EXPECT_EQ(spcclCommRegister(comm, &value, 4, &handle), spcclInvalidUsage);
  EXPECT_EQ(spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, comm, nullptr),
            spcclInvalidUsage);
  EXPECT_THAT(LastError(comm), HasSubstr("the communicator was destroyed"));
}

TEST_F(CommTest, NullIsRefusedEverywhere) {
  const spcclComm_t comm = OneRank();
  int number;
  spcclResult_t async;
  EXPECT_EQ(spcclCommDestroy(nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommAbort(nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommCount(nullptr, &number), spcclInvalidArgument);
  EXPECT_EQ(spcclCommGetAsyncError(nullptr, &async), spcclInvalidArgument);
  EXPECT_EQ(spcclCommCount(comm, nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommUserRank(comm, nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclCommGetAsyncError(comm, nullptr), spcclInvalidArgument);
  EXPECT_THAT(LastError(comm), HasSubstr("asyncError is NULL"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(CommTest, ADaemonThatHasGoneJustNowHasLetGoOfAll) {
  const spcclComm_t aborted = OneRank(), destroyed = OneRank();
  daemon_.GoDeaf();
  EXPECT_EQ(spcclCommAbort(aborted), spcclSuccess) << LastError();
  EXPECT_EQ(spcclCommDestroy(destroyed), spcclSuccess) << LastError();
}

TEST_F(CommTest, AFailureNoticeStaysAndIsTold) {
  const spcclComm_t comm = OneRank(), other = OneRank();
  spcclResult_t async;
  EXPECT_EQ(spcclCommGetAsyncError(comm, &async), spcclSuccess);
  EXPECT_EQ(async, spcclSuccess);
  std::vector<float> send = Rising(8), recv(8);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  const uint32_t id = daemon_.submissions()[0].comm_id;
  daemon_.Send(
      Notice(shm::ReplyType::kCommFailed, id, shm::Result::kRemoteError, "rank 3 (pid 77) died"));
  // A request's reply comes after the notice.
  spcclUniqueId unused;
  EXPECT_EQ(spcclGetUniqueId(&unused), spcclSuccess);
  EXPECT_EQ(spcclCommGetAsyncError(comm, &async), spcclSuccess);
  EXPECT_EQ(async, spcclRemoteError);
  EXPECT_THAT(LastError(comm), HasSubstr("rank 3 (pid 77) died"));
  EXPECT_EQ(Sum(send, &recv, comm), spcclRemoteError);
  EXPECT_EQ(daemon_.submissions().size(), 1u);
  EXPECT_EQ(Sum(send, &recv, other), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(other), spcclSuccess);
}

TEST_F(CommTest, DestroyWaitsForWhatIsOutstanding) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  daemon_.HoldOperations(true);
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  std::thread destroyer([&] { EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess); });
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kCommDestroy), 0u);
  daemon_.HoldOperations(false);
  destroyer.join();
  EXPECT_EQ(recv, send);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kCommDestroy), 1u);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
}

TEST_F(CommTest, AbortFreesARankThatWaits) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
  spcclResult_t result = spcclSuccess;
  std::string text;
  std::thread waiter([&] {
    const std::vector<float> send = Rising(8);
    std::vector<float> recv(8);
    result = Sum(send, &recv, comms[0]);  // rank 1 never comes
    text = LastError();
  });
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  EXPECT_EQ(spcclCommAbort(comms[0]), spcclSuccess) << LastError();
  waiter.join();
  EXPECT_EQ(result, spcclRemoteError);
  // Whatever the daemon says, which may know of no such communicator any more.
  EXPECT_THAT(text, HasSubstr("the communicator was aborted by this rank"));
  EXPECT_EQ(spcclCommAbort(comms[1]), spcclSuccess);
}

TEST_F(CommTest, AbortFreesADestroyThatWaits) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  EXPECT_EQ(Sum(send, &recv, comms[0], stream), spcclSuccess);
  std::thread destroyer([&] { spcclCommDestroy(comms[0]); });
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  // The destroyer may get there first; then there is nothing left to abort, or it waits.
  spcclCommAbort(comms[0]);
  destroyer.join();
  EXPECT_EQ(spcclStreamDestroy(stream), spcclRemoteError);
  EXPECT_EQ(spcclCommAbort(comms[1]), spcclSuccess);
}

TEST_F(CommTest, AbortEndsWhatWaitsBehindAnotherCommunicator) {
  const spcclComm_t one = OneRank(), two = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  daemon_.HoldOperations(true);
  std::vector<float> a = Rising(8), b(8), c(8), d(8);
  EXPECT_EQ(Sum(a, &b, one, stream), spcclSuccess);
  EXPECT_EQ(Sum(a, &c, two, stream), spcclSuccess);
  EXPECT_EQ(Sum(a, &d, two, stream), spcclSuccess);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(spcclCommAbort(two), spcclSuccess) << LastError();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(spcclStreamQuery(stream), spcclInProgress);
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclRemoteError);
  EXPECT_EQ(b, a);
  EXPECT_EQ(daemon_.submissions().size(), 1u);
  EXPECT_EQ(spcclCommDestroy(one), spcclSuccess);
}

TEST_F(CommTest, ACudaLibraryThatCannotBeLoadedIsNoPassingMatter) {
  ::setenv("SPCCL_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  spcclUniqueId id;
  ASSERT_EQ(spcclGetUniqueId(&id), spcclSuccess);
  spcclComm_t comm = nullptr;
  EXPECT_EQ(spcclCommInitRank(&comm, 1, id, 0), spcclInvalidArgument);
  ::unsetenv("SPCCL_CUDA_LIBRARY");
  EXPECT_THAT(LastError(), HasSubstr("SPCCL_CUDA_LIBRARY is \"/nowhere/libcuda.so.1\": there is no "
                                     "CUDA driver"));
  EXPECT_EQ(spcclCommInitRank(&comm, 1, id, 0), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(CommTest, AnErrorOfLeavingIsTold) {
  const spcclComm_t comm = OneRank();
  daemon_.Refuse(shm::RequestType::kCommDestroy, shm::Result::kInternalError, "no such thing");
  EXPECT_EQ(spcclCommDestroy(comm), spcclInternalError);
  EXPECT_THAT(LastError(), HasSubstr("no such thing"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclInvalidUsage);
}

}  // namespace
}  // namespace spccl::client
