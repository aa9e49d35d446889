#include "daemon/communicator.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTimeout = 1000;

Communicator::Member Member(uint32_t rank) {
  return {.session_id = 100 + rank, .handle = 1, .pid = static_cast<pid_t>(4000 + rank)};
}

Communicator Forming(uint32_t ranks) {
  return Communicator(1, "u1000.s1", 1000, ranks);
}

Communicator Formed(uint32_t ranks) {
  Communicator comm = Forming(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_THAT(comm.Join(rank, ranks, Member(rank), 500), IsOk());
  }
  EXPECT_EQ(comm.state(), Communicator::State::kReady);
  return comm;
}

RankPart Part(uint64_t ticket, uint64_t count = 4) {
  RankPart part;
  part.ticket = ticket;
  part.op.count = count;
  return part;
}

// Submits a good part, which must complete nothing at once.
void Submit(Communicator& comm, uint32_t rank, uint64_t sequence, int64_t now_ns = 0,
            uint64_t count = 4) {
  const auto outcomes =
      comm.Submit(rank, sequence, Part(sequence * 10 + rank, count), absl::OkStatus(), now_ns);
  ASSERT_THAT(outcomes, IsOk());
  EXPECT_TRUE(outcomes->empty());
}

TEST(CommunicatorTest, BecomesReadyWithTheLastRank) {
  Communicator comm = Forming(3);
  for (const uint32_t rank : {2u, 0u}) {
    ASSERT_THAT(comm.Join(rank, 3, Member(rank), 500), IsOk());
    EXPECT_EQ(comm.state(), Communicator::State::kForming);
  }
  EXPECT_EQ(comm.PhaseOf(0), "forming: waiting for rank 1");
  ASSERT_THAT(comm.Join(1, 3, Member(1), 500), IsOk());
  EXPECT_EQ(comm.state(), Communicator::State::kReady);
  EXPECT_EQ(comm.PhaseOf(0), "idle");
}

TEST(CommunicatorTest, RefusesRanksThatDisagree) {
  Communicator comm = Forming(3);
  ASSERT_THAT(comm.Join(1, 3, Member(1), 500), IsOk());
  EXPECT_THAT(comm.Join(0, 2, Member(0), 500),
              FailsWith(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("rank 0 (pid 4000) says 2"), HasSubstr("3"))));
  EXPECT_THAT(comm.Join(1, 3, Member(2), 500),
              FailsWith(absl::StatusCode::kFailedPrecondition,
                        HasSubstr("two processes are rank 1: pid 4001 and pid 4002")));
}

TEST(CommunicatorTest, WishesMustAgreeWhereTheyAreSaid) {
  Communicator comm = Forming(3);
  Communicator::Member ring = Member(0), local = Member(2);
  ring.wishes.algorithm = policy::Algorithm::kRing;
  local.wishes.algorithm = policy::Algorithm::kLocal;
  ASSERT_THAT(comm.Join(0, 3, ring, 500), IsOk());
  ASSERT_THAT(comm.Join(1, 3, Member(1), 500), IsOk());
  EXPECT_THAT(comm.Join(2, 3, local, 500), FailsWith(absl::StatusCode::kFailedPrecondition,
                                                     HasSubstr("SPCCL_ALGO is local on rank 2 and "
                                                               "ring on a rank that")));
  EXPECT_EQ(comm.wishes().algorithm, policy::Algorithm::kRing);
}

TEST(CommunicatorTest, FormingHasADeadlineThatNamesWhoIsMissing) {
  Communicator comm = Forming(4);
  ASSERT_THAT(comm.Join(2, 4, Member(2), 500), IsOk());
  ASSERT_THAT(comm.Join(0, 4, Member(0), 300), IsOk());
  EXPECT_FALSE(comm.Check(299, kTimeout).has_value());
  const auto failure = comm.Check(300, kTimeout);
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->status, FailsWith(absl::StatusCode::kDeadlineExceeded,
                                         HasSubstr("rank 1, rank 3 of 4 did not join")));
}

TEST(CommunicatorTest, RunsInOrderOneAtATime) {
  Communicator comm = Formed(2);
  Submit(comm, 0, 1);  // two threads of a rank may overtake each other
  Submit(comm, 1, 0);
  Submit(comm, 1, 1);
  EXPECT_FALSE(comm.TakeReady(0).has_value());
  EXPECT_EQ(comm.PhaseOf(1), "waiting for rank 0 (pid 4000)");
  Submit(comm, 0, 0);
  auto ready = comm.TakeReady(0);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->sequence, 0u);
  EXPECT_THAT(ready->mismatch, IsOk());
  ASSERT_EQ(ready->parts.size(), 2u);
  EXPECT_EQ(ready->parts[0].ticket, 0u);
  EXPECT_EQ(ready->parts[1].ticket, 1u);
  EXPECT_EQ(comm.PhaseOf(0), "running");
  EXPECT_FALSE(comm.TakeReady(0).has_value());
  comm.FinishRunning(0);
  ready = comm.TakeReady(0);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->sequence, 1u);
}

TEST(CommunicatorTest, TellsBothCallsOfAMismatch) {
  Communicator comm = Formed(3);
  for (const uint32_t rank : {0u, 1u, 2u}) Submit(comm, rank, 0, 0, rank == 2 ? 5 : 4);
  const auto ready = comm.TakeReady(0);
  ASSERT_TRUE(ready.has_value());
  EXPECT_THAT(ready->mismatch,
              FailsWith(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("rank 0 called all_reduce count=4 float32 sum"),
                              HasSubstr("rank 2 all_reduce count=5 float32 sum"))));
}

TEST(CommunicatorTest, AWrongPartFailsTheOperationOnAllRanksAndNoOther) {
  Communicator comm = Formed(3);
  Submit(comm, 0, 0);
  auto outcomes = comm.Submit(1, 0, Part(77), absl::InvalidArgumentError("bad root"), 0);
  ASSERT_THAT(outcomes, IsOk());
  ASSERT_EQ(outcomes->size(), 2u);
  EXPECT_EQ((*outcomes)[0].part.ticket, 77u);
  EXPECT_THAT((*outcomes)[0].status,
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("bad root")));
  EXPECT_EQ((*outcomes)[1].part.ticket, 0u);
  const auto is_told = FailsWith(absl::StatusCode::kAborted,
                                 AllOf(HasSubstr("rank 1 (pid 4001)"), HasSubstr("bad root")));
  EXPECT_THAT((*outcomes)[1].status, is_told);
  outcomes = comm.Submit(2, 0, Part(78), absl::OkStatus(), 0);
  ASSERT_THAT(outcomes, IsOk());
  ASSERT_EQ(outcomes->size(), 1u);
  EXPECT_THAT((*outcomes)[0].status, is_told);
  EXPECT_FALSE(comm.TakeReady(0).has_value());
  for (const uint32_t rank : {0u, 1u, 2u}) Submit(comm, rank, 1);
  const auto ready = comm.TakeReady(0);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->sequence, 1u);
}

TEST(CommunicatorTest, AWaitingOperationHasADeadlineThatNamesWhoIsLate) {
  Communicator comm = Formed(3);
  Submit(comm, 0, 0, 100);
  Submit(comm, 2, 0, 900);
  EXPECT_FALSE(comm.Check(1099, kTimeout).has_value());
  const auto failure = comm.Check(1100, kTimeout);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->culprit_rank, 1);
  EXPECT_THAT(failure->status, FailsWith(absl::StatusCode::kDeadlineExceeded,
                                         HasSubstr("waiting for rank 1 (pid 4001)")));
  const auto outcomes = comm.Fail(*failure);
  EXPECT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(comm.state(), Communicator::State::kFailed);
  EXPECT_EQ(comm.PhaseOf(0), "failed");
  EXPECT_FALSE(comm.Check(9999, kTimeout).has_value());
}

TEST(CommunicatorTest, TheDeadlineOfAnOperationStartsWhenItIsNext) {
  Communicator comm = Formed(2);
  for (const uint32_t rank : {0u, 1u}) Submit(comm, rank, 0, 0);
  EXPECT_FALSE(comm.Check(5000, kTimeout).has_value());  // all are there: nobody is late
  Submit(comm, 0, 1, 10);
  ASSERT_TRUE(comm.TakeReady(20).has_value());
  comm.FinishRunning(800);
  EXPECT_FALSE(comm.Check(1799, kTimeout).has_value());
  EXPECT_TRUE(comm.Check(1800, kTimeout).has_value());
}

TEST(CommunicatorTest, ARunningOperationHasADeadlineToo) {
  Communicator comm = Formed(1);
  Submit(comm, 0, 0, 0);
  ASSERT_TRUE(comm.TakeReady(50).has_value());
  EXPECT_FALSE(comm.Check(1049, kTimeout).has_value());
  const auto failure = comm.Check(1050, kTimeout);
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->status,
              FailsWith(absl::StatusCode::kDeadlineExceeded, HasSubstr("running operation 0")));
}

TEST(CommunicatorTest, AfterAFailureEverythingCompletesWithIt) {
  Communicator comm = Formed(2);
  Submit(comm, 0, 0);
  Submit(comm, 0, 1);
  const auto outcomes = comm.Fail({.status = absl::AbortedError("rank 1 died"), .culprit_rank = 1});
  ASSERT_EQ(outcomes.size(), 2u);
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.status, FailsWith(absl::StatusCode::kAborted, HasSubstr("rank 1 died")));
  }
  const auto late = comm.Submit(0, 2, Part(9), absl::OkStatus(), 0);
  ASSERT_THAT(late, IsOk());
  ASSERT_EQ(late->size(), 1u);
  EXPECT_THAT((*late)[0].status, FailsWith(absl::StatusCode::kAborted, HasSubstr("rank 1 died")));
  EXPECT_TRUE(comm.Fail({.status = absl::AbortedError("again")}).empty());
  EXPECT_THAT(comm.error(), FailsWith(absl::StatusCode::kAborted, HasSubstr("rank 1 died")));
}

TEST(CommunicatorTest, NobodyWaitsForARankThatHasLeft) {
  Communicator comm = Formed(2);
  Submit(comm, 0, 0);
  comm.Leave(0);
  EXPECT_FALSE(comm.Check(0, kTimeout).has_value());  // its part of operation 0 is there
  Submit(comm, 1, 0);
  ASSERT_TRUE(comm.TakeReady(0).has_value());
  comm.FinishRunning(0);
  Submit(comm, 1, 1);
  const auto failure = comm.Check(0, kTimeout);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->culprit_rank, 0);
  EXPECT_THAT(failure->status,
              FailsWith(absl::StatusCode::kAborted, HasSubstr("rank 0 (pid 4000) has left")));
}

TEST(CommunicatorTest, IsAbandonedWhenAllHaveLeftAndNothingRuns) {
  Communicator comm = Formed(2);
  for (const uint32_t rank : {0u, 1u}) Submit(comm, rank, 0);
  ASSERT_TRUE(comm.TakeReady(0).has_value());
  comm.Leave(0);
  comm.Leave(0);
  EXPECT_FALSE(comm.abandoned());
  comm.Leave(1);
  EXPECT_FALSE(comm.abandoned());
  comm.FinishRunning(0);
  EXPECT_TRUE(comm.abandoned());
}

TEST(CommunicatorTest, SequencesComeOnceAndNotFarAhead) {
  Communicator comm = Formed(2);
  Submit(comm, 0, 0);
  EXPECT_FALSE(comm.Submit(0, 0, Part(1), absl::OkStatus(), 0).ok());
  Submit(comm, 0, 5);
  EXPECT_FALSE(comm.Submit(0, 5, Part(1), absl::OkStatus(), 0).ok());
  Submit(comm, 0, SequenceWindow::kAhead);
  EXPECT_FALSE(comm.Submit(0, SequenceWindow::kAhead + 1, Part(1), absl::OkStatus(), 0).ok());
  EXPECT_FALSE(comm.Submit(0, ~0ull, Part(1), absl::OkStatus(), 0).ok());
}

Communicator::Member Remote(uint32_t rank) {
  return {.pid = static_cast<pid_t>(7000 + rank), .node = "node-b"};
}

// Ranks 0 and 2 here, 1 and 3 on node-b, as the root sees it.
Communicator Connected() {
  Communicator comm = Forming(4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(comm.state(), Communicator::State::kForming);
    EXPECT_THAT(comm.Join(rank, 4, rank % 2 == 0 ? Member(rank) : Remote(rank), 500), IsOk());
  }
  EXPECT_EQ(comm.state(), Communicator::State::kConnecting);
  comm.Open();
  EXPECT_EQ(comm.state(), Communicator::State::kReady);
  return comm;
}

TEST(CommunicatorAcrossNodesTest, WaitsForItsOwnRanksOnly) {
  Communicator comm = Connected();
  EXPECT_THAT(comm.local_ranks(), ::testing::ElementsAre(0, 2));
  EXPECT_EQ(comm.NameOfRank(3), "rank 3 (pid 7003 on node-b)");
  EXPECT_EQ(comm.PhaseOf(3), "on node-b");
  Submit(comm, 2, 0);
  EXPECT_FALSE(comm.TakeReady(0).has_value());
  Submit(comm, 0, 0);
  const auto ready = comm.TakeReady(0);
  ASSERT_TRUE(ready.has_value());
  ASSERT_EQ(ready->parts.size(), 2u);
  EXPECT_EQ(ready->parts[1].ticket, 2u);
}

TEST(CommunicatorAcrossNodesTest, RanksThatDisagreeAreNamedByTheirNumbers) {
  Communicator comm = Connected();
  Submit(comm, 0, 0, 0, 4);
  Submit(comm, 2, 0, 0, 5);
  EXPECT_THAT(comm.TakeReady(0)->mismatch,
              FailsWith(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("rank 0 called"), HasSubstr("rank 2 all_reduce count=5"))));
}

TEST(CommunicatorAcrossNodesTest, ALeaverElsewhereIsMissedFromItsOperationOn) {
  Communicator comm = Connected();
  comm.LeaveRemote(3, 1, "has left");
  for (const uint32_t rank : {0u, 2u}) Submit(comm, rank, 0);
  ASSERT_TRUE(comm.TakeReady(0).has_value());
  EXPECT_FALSE(comm.Check(0, kTimeout).has_value());
  comm.FinishRunning(0);
  for (const uint32_t rank : {0u, 2u}) Submit(comm, rank, 1);
  auto failure = comm.Check(0, kTimeout);  // while it waits, and while it runs
  ASSERT_TRUE(failure.has_value());
  ASSERT_TRUE(comm.TakeReady(0).has_value());
  failure = comm.Check(0, kTimeout);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->culprit_rank, 3);
  EXPECT_THAT(failure->status, FailsWith(absl::StatusCode::kAborted,
                                         HasSubstr("rank 3 (pid 7003 on node-b) has left")));
}

TEST(CommunicatorAcrossNodesTest, IsAbandonedWhenTheLocalRanksHaveLeft) {
  Communicator comm = Connected();
  comm.Leave(0);
  EXPECT_FALSE(comm.abandoned());
  comm.Leave(2);
  EXPECT_TRUE(comm.abandoned());
}

TEST(CommunicatorAcrossNodesTest, MeetsTheRanksThatTheRootNames) {
  Communicator comm(1, "u1000.s1", 1000, 3, "root:7411");
  ASSERT_THAT(comm.Join(1, 3, Member(1), 500), IsOk());
  EXPECT_EQ(comm.PhaseOf(1), "forming: waiting for the daemon at root:7411");
  EXPECT_THAT(comm.Check(500, kTimeout)->status, FailsWith(absl::StatusCode::kDeadlineExceeded,
                                                           HasSubstr("root:7411 did not answer")));
  const Communicator::Member here = {};
  EXPECT_THAT(comm.Meet({here, Remote(1), Remote(2)}),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 0 is here")));
  ASSERT_THAT(comm.Meet({Remote(0), here, Remote(2)}), IsOk());
  EXPECT_EQ(comm.state(), Communicator::State::kConnecting);
  comm.SetWaitingFor("node-b to connect");
  EXPECT_EQ(comm.PhaseOf(1), "connecting: waiting for node-b to connect");
  EXPECT_THAT(comm.Check(500, kTimeout)->status,
              FailsWith(absl::StatusCode::kDeadlineExceeded, HasSubstr("node-b to connect")));
  comm.Open();
  EXPECT_EQ(comm.NameOfRank(0), "rank 0 (pid 7000 on node-b)");
  EXPECT_EQ(comm.NameOfRank(1), "rank 1 (pid 4001)");
}

TEST(CommunicatorAcrossNodesTest, WaitsForTheRootEvenIfAllRanksAreHere) {
  Communicator comm(1, "u1000.s1", 1000, 1, "root:7411");
  ASSERT_THAT(comm.Join(0, 1, Member(0), 500), IsOk());
  EXPECT_EQ(comm.state(), Communicator::State::kForming);
  ASSERT_THAT(comm.Meet({Communicator::Member()}), IsOk());
  comm.Open();
  EXPECT_EQ(comm.state(), Communicator::State::kReady);
}

TEST(SequenceWindowTest, AgreesWithASet) {
  SequenceWindow window;
  // In blocks of eight, each backwards, each number twice.
  for (uint64_t block = 0; block < 1000; ++block) {
    for (uint64_t i = 8; i-- > 0;) {
      ASSERT_EQ(window.Accept(block * 8 + i), SequenceWindow::Verdict::kNew);
      ASSERT_EQ(window.Accept(block * 8 + i), SequenceWindow::Verdict::kReplayed);
    }
    ASSERT_EQ(window.base(), (block + 1) * 8);
    ASSERT_EQ(window.Accept(block * 8), SequenceWindow::Verdict::kReplayed);
  }
}

}  // namespace
}  // namespace spccl::daemon
