#include "client/stream.h"

#include <thread>
#include <vector>

#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

class StreamTest : public testing::ClientTest {
 protected:
  static spcclStream_t NewStream() {
    spcclStream_t stream = nullptr;
    EXPECT_EQ(spcclStreamCreate(&stream), spcclSuccess);
    return stream;
  }
};

TEST_F(StreamTest, ACallReturnsBeforeItsOperationEnds) {
  const spcclComm_t comm = OneRank();
  const spcclStream_t stream = NewStream();
  EXPECT_EQ(spcclStreamQuery(stream), spcclSuccess);
  daemon_.HoldOperations(true);
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  EXPECT_EQ(spcclStreamQuery(stream), spcclInProgress);
  EXPECT_EQ(recv, std::vector<float>(8));
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(spcclStreamQuery(stream), spcclSuccess);
  EXPECT_EQ(recv, send);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(StreamTest, OperationsOfOneCommunicatorAreSubmittedAtOnce) {
  const spcclComm_t comm = OneRank();
  const spcclStream_t stream = NewStream();
  daemon_.HoldOperations(true);
  std::vector<float> a = Rising(8), b(8), c(8);
  EXPECT_EQ(Sum(a, &b, comm, stream), spcclSuccess);
  EXPECT_EQ(Sum(b, &c, comm, stream), spcclSuccess);
  EXPECT_TRUE(daemon_.AwaitSubmissions(2));
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(c, a);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(StreamTest, AnotherCommunicatorsOperationWaitsItsTurn) {
  const spcclComm_t one = OneRank(), two = OneRank();
  const spcclStream_t stream = NewStream();
  daemon_.HoldOperations(true);
  std::vector<float> a = Rising(8), b(8), c(8), d(8);
  EXPECT_EQ(Sum(a, &b, one, stream), spcclSuccess);
  EXPECT_EQ(Sum(b, &c, two, stream), spcclSuccess);
  EXPECT_EQ(Sum(c, &d, one, stream), spcclSuccess);
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  EXPECT_EQ(daemon_.submissions().size(), 1u);
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(d, a);
  const auto seen = daemon_.submissions();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].comm_id, seen[2].comm_id);
  EXPECT_EQ(seen[2].sequence, 1u);  // given at the call, not when its turn came
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(one), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(two), spcclSuccess);
}

TEST_F(StreamTest, AnEarlierPlaceFindsRoomHoweverLateItIsSubmitted) {
  const spcclComm_t one = OneRank(), two = OneRank();
  const spcclStream_t first = NewStream(), second = NewStream();
  daemon_.HoldOperations(true);
  std::vector<float> a = Rising(8), b(8), c(8);
  EXPECT_EQ(Sum(a, &b, two, first), spcclSuccess);
  EXPECT_EQ(Sum(b, &c, one, first), spcclSuccess);  // place 0 of `one`, behind `two`
  std::vector<float> out(200);
  for (float& value : out) {
    ASSERT_EQ(spcclAllReduce(&a[0], &value, 1, spcclFloat, spcclSum, one, second), spcclSuccess);
  }
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamDestroy(first), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(second), spcclSuccess);
  EXPECT_EQ(c, a);
  EXPECT_THAT(out, ::testing::Each(a[0]));
  EXPECT_EQ(spcclCommDestroy(one), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(two), spcclSuccess);
}

TEST_F(StreamTest, CopiedOperationsKeepTheOrder) {
  daemon_.SetAttach(false);
  const spcclComm_t comm = OneRank();
  const spcclStream_t stream = NewStream();
  std::vector<std::vector<float>> chain(20, std::vector<float>(64));
  chain[0] = Rising(64);
  for (size_t i = 1; i < chain.size(); ++i) {
    ASSERT_EQ(Sum(chain[i - 1], &chain[i], comm, stream), spcclSuccess);
  }
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(chain.back(), chain[0]);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(StreamTest, SynchronizeGivesTheFirstErrorOnce) {
  const spcclComm_t comm = OneRank();
  const spcclStream_t stream = NewStream();
  const std::vector<float> send = Rising(8);
  std::vector<float> recv(8);
  daemon_.FailOperations(shm::Result::kInvalidUsage, "first");
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  EXPECT_TRUE(daemon_.AwaitSubmissions(1));
  daemon_.FailOperations(shm::Result::kRemoteError, "second");
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("first"));
  EXPECT_THAT(spcclGetLastError(comm), HasSubstr("second"));  // the communicator's last
  EXPECT_EQ(spcclStreamSynchronize(stream), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclRemoteError);
  EXPECT_EQ(spcclStreamQuery(stream), spcclInvalidUsage);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(StreamTest, DeathEndsWhatIsQueued) {
  const spcclComm_t one = OneRank(), two = OneRank();
  const spcclStream_t stream = NewStream();
  daemon_.HoldOperations(true);
  std::vector<float> a = Rising(8), b(8), c(8);
  EXPECT_EQ(Sum(a, &b, one, stream), spcclSuccess);
  EXPECT_EQ(Sum(b, &c, two, stream), spcclSuccess);
  daemon_.Kill();
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSystemError);
  EXPECT_EQ(spcclCommDestroy(one), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(two), spcclSuccess);
}

TEST_F(StreamTest, RefusesWhatIsNoStream) {
  const spcclComm_t comm = OneRank();
  EXPECT_EQ(spcclStreamCreate(nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclStreamSynchronize(nullptr), spcclInvalidArgument);
  EXPECT_EQ(spcclStreamDestroy(reinterpret_cast<spcclStream_t>(comm)), spcclInvalidArgument);
  float value = 0;
  EXPECT_EQ(spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, comm,
                           reinterpret_cast<spcclStream_t>(comm)),
            spcclInvalidArgument);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

}  // namespace
}  // namespace spccl::client
