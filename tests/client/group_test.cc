#include "client/group.h"

#include <thread>
#include <vector>

#include "tests/client/client_test.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

class GroupTest : public testing::ClientTest {
 protected:
  static std::vector<spcclComm_t> AllRanks(int ranks) {
    std::vector<spcclComm_t> comms(ranks);
    EXPECT_EQ(spcclCommInitAll(comms.data(), ranks, nullptr), spcclSuccess) << LastError();
    return comms;
  }
};

TEST_F(GroupTest, OneThreadMakesAndUsesSeveralRanks) {
  constexpr int kRanks = 3;
  spcclUniqueId id;
  ASSERT_EQ(spcclGetUniqueId(&id), spcclSuccess);
  spcclComm_t comms[kRanks];
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(spcclCommInitRank(&comms[rank], kRanks, id, rank), spcclSuccess);
    EXPECT_EQ(comms[rank], nullptr);
  }
  ASSERT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
  std::vector<float> send = Rising(8), recv(8);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  for (spcclComm_t comm : comms) EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(daemon_.submissions().size(), 0u);
  EXPECT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
  EXPECT_EQ(daemon_.submissions().size(), 3u);
  for (int rank = 0; rank < kRanks; ++rank) {
    int count, user_rank;
    EXPECT_EQ(spcclCommCount(comms[rank], &count), spcclSuccess);
    EXPECT_EQ(spcclCommUserRank(comms[rank], &user_rank), spcclSuccess);
    EXPECT_EQ(count, kRanks);
    EXPECT_EQ(user_rank, rank);
    EXPECT_EQ(spcclCommDestroy(comms[rank]), spcclSuccess);
  }
}

TEST_F(GroupTest, MoreThanTheRingsHoldOnOneRankAfterTheOther) {
  const std::vector<spcclComm_t> comms = AllRanks(2);
  float value = 1, other = 1;
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  for (const spcclComm_t comm : comms) {
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(spcclAllReduce(&value, &other, 1, spcclFloat, spcclSum, comm, nullptr),
                spcclSuccess);
    }
  }
  EXPECT_EQ(spcclGroupEnd(), spcclSuccess) << LastError();
  EXPECT_EQ(daemon_.submissions().size(), 600u);
  for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, ThreadsOfOneProcessEachUseARank) {
  const std::vector<spcclComm_t> comms = AllRanks(4);
  std::vector<std::thread> threads;
  std::vector<int> failures(comms.size());
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<float> send = Rising(8), recv(8);
      for (int i = 0; i < 200; ++i) {
        if (Sum(send, &recv, comms[rank]) != spcclSuccess) ++failures[rank];
      }
      if (spcclCommDestroy(comms[rank]) != spcclSuccess) ++failures[rank];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(failures, ::testing::Each(0));
}

TEST_F(GroupTest, GroupsNest) {
  const spcclComm_t comm = OneRank();
  std::vector<float> send = Rising(8), recv(8);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  ASSERT_EQ(spcclGroupEnd(), spcclSuccess);
  EXPECT_EQ(daemon_.submissions().size(), 0u);
  ASSERT_EQ(spcclGroupEnd(), spcclSuccess);
  EXPECT_EQ(recv, send);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, StreamsInAGroupAreNotWaitedFor) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  std::vector<float> send = Rising(8), recv(8);
  daemon_.HoldOperations(true);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm, stream), spcclSuccess);
  ASSERT_EQ(spcclGroupEnd(), spcclSuccess);
  EXPECT_EQ(spcclStreamQuery(stream), spcclInProgress);
  daemon_.HoldOperations(false);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, AnErrorInsideStartsNothing) {
  const spcclComm_t comm = OneRank();
  std::vector<float> send = Rising(8), recv(8);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(spcclAllReduce(nullptr, recv.data(), 8, spcclFloat, spcclSum, comm, nullptr),
            spcclInvalidArgument);
  EXPECT_EQ(spcclGroupEnd(), spcclInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("spcclGroupEnd: spcclAllReduce: sendbuff is NULL"));
  EXPECT_EQ(daemon_.submissions().size(), 0u);
  // The next group is a new one.
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(spcclGroupEnd(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, TheFirstErrorOfWhatWasStartedComesOut) {
  const spcclComm_t comm = OneRank();
  std::vector<float> send = Rising(8), recv(8);
  daemon_.FailOperations(shm::Result::kRemoteError, "rank 1 died");
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(spcclGroupEnd(), spcclRemoteError);
  EXPECT_THAT(LastError(comm), HasSubstr("rank 1 died"));
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, FailedCommunicatorsLeaveNothing) {
  daemon_.Refuse(shm::RequestType::kCommInit, shm::Result::kRemoteError, "rank 1 did not come");
  spcclComm_t comms[2];
  EXPECT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclRemoteError);
  EXPECT_THAT(LastError(), HasSubstr("rank 1 did not come"));
}

TEST_F(GroupTest, InitAllInsideAGroupWaitsForItsEnd) {
  spcclComm_t comms[2];
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  ASSERT_EQ(spcclCommInitAll(comms, 2, nullptr), spcclSuccess);
  EXPECT_EQ(comms[0], nullptr);
  ASSERT_EQ(spcclGroupEnd(), spcclSuccess);
  for (const spcclComm_t comm : comms) EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(GroupTest, AnEndNeedsAStart) {
  EXPECT_EQ(spcclGroupEnd(), spcclInvalidUsage);
}

}  // namespace
}  // namespace spccl::client
