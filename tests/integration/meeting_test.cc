// How ranks of several nodes meet, and what each is told when they cannot.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fault_job.h"

namespace spccl::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// One rank's call of spcclCommInitRank.
struct Call {
  const SpawnedDaemon* daemon;
  int rank;
  int ranks;
  spcclUniqueId id;
  const char* algorithm = "";
  const char* timeout_ms = "20000";
};

// Makes all calls at once; what each rank was told, empty: success.
std::vector<std::string> Join(const std::vector<Call>& calls) {
  MultiProcess processes(
      static_cast<int>(calls.size()), [&](int index, const MultiProcess::Report& report) {
        const Call& call = calls[index];
        ::setenv("SPCCL_RUNTIME_DIR", call.daemon->runtime_dir().c_str(), 1);
        ::setenv("SPCCL_INIT_TIMEOUT_MS", call.timeout_ms, 1);
        if (*call.algorithm != 0) ::setenv("SPCCL_ALGO", call.algorithm, 1);
        spcclComm_t comm = nullptr;
        if (spcclCommInitRank(&comm, call.ranks, call.id, call.rank) != spcclSuccess) {
          report(spcclGetLastError(nullptr));
        }
        return 0;
      });
  std::vector<std::string> told;
  for (const ProcessEnd& end : processes.Wait(kPatienceMs)) {
    told.push_back(end.timed_out ? "it hung" : end.output);
  }
  return told;
}

class MeetingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto& daemon : daemons_) daemon = StartServing({"--peers-listen=127.0.0.1:0"});
    id_ = NewUniqueId(root());
  }
  const SpawnedDaemon& root() const { return *daemons_[0]; }
  Call Of(int node, int rank, int ranks) const {
    return {.daemon = daemons_[node].get(), .rank = rank, .ranks = ranks, .id = id_};
  }

  std::unique_ptr<SpawnedDaemon> daemons_[2];
  spcclUniqueId id_;
};

TEST_F(MeetingTest, RanksOfTwoNodesMeet) {
  EXPECT_THAT(Join({Of(0, 0, 3), Of(1, 1, 3), Of(0, 2, 3)}), ::testing::ElementsAre("", "", ""));
}

TEST_F(MeetingTest, TheRootsNodeNeedsNoRankOfItsOwn) {
  EXPECT_THAT(Join({Of(1, 0, 2), Of(1, 1, 2)}), ::testing::ElementsAre("", ""));
}

TEST_F(MeetingTest, AMissingRankIsNamedEverywhere) {
  std::vector<Call> calls = {Of(0, 0, 3), Of(1, 1, 3)};
  for (Call& call : calls) call.timeout_ms = "700";
  for (const std::string& told : Join(calls)) {
    EXPECT_THAT(told, HasSubstr("rank 2 of 3 did not join"));
  }
}

TEST_F(MeetingTest, TwoRanksOfOneNumberAreNamedEverywhere) {
  for (const std::string& told : Join({Of(0, 0, 3), Of(1, 1, 3), Of(1, 0, 3)})) {
    EXPECT_THAT(told, HasSubstr("two processes are rank 0"));
  }
}

TEST_F(MeetingTest, RanksThatDisagreeOnTheSizeAreNamedEverywhere) {
  for (const std::string& told : Join({Of(0, 0, 3), Of(1, 1, 4)})) {
    EXPECT_THAT(told, AllOf(HasSubstr("disagree on the size"), HasSubstr("3"), HasSubstr("4")));
  }
}

int SumOfAnotherCount(RankContext& context) {
  std::vector<float> data(100 + context.rank, 1);
  ReportResult(context, spcclAllReduce(data.data(), data.data(), data.size(), spcclFloat32,
                                       spcclSum, context.comm, nullptr));
  return 0;
}

// Whichever node finds it first.
TEST_F(MeetingTest, RanksThatDisagreeOnAnOperationAreAllToldBothValues) {
  for (int round = 0; round < 8; ++round) {
    FaultJob job({daemons_[0].get(), daemons_[1].get()}, SumOfAnotherCount);
    for (const ProcessEnd& end : job.processes().Wait(kPatienceMs)) {
      const Told told = ParseResult(end.output);
      EXPECT_EQ(told.result, spcclInvalidUsage) << end.output;
      EXPECT_THAT(told.text,
                  AllOf(HasSubstr("ranks disagree"), HasSubstr("of 100 "), HasSubstr("of 101 ")));
    }
  }
}

TEST_F(MeetingTest, RanksThatWishDifferentAlgorithmsAreToldBoth) {
  std::vector<Call> calls = {Of(0, 0, 3), Of(1, 1, 3)};
  calls[0].algorithm = "ring";
  calls[1].algorithm = "split";
  for (const std::string& told : Join(calls)) {
    EXPECT_THAT(told, AllOf(HasSubstr("ring"), HasSubstr("split")));
  }
}

TEST_F(MeetingTest, AWrongSecretIsRefusedByTheRoot) {
  Call call = Of(1, 1, 2);
  call.id.internal[20] ^= 1;
  EXPECT_THAT(Join({call})[0], HasSubstr("the unique id is not known"));
}

TEST_F(MeetingTest, AnIdOfADaemonThatIsGoneIsRefused) {
  daemons_[0].reset();
  EXPECT_THAT(Join({Of(1, 1, 2)})[0],
              AnyOf(HasSubstr("refused"), HasSubstr("connect"), HasSubstr("lost")));
}

TEST_F(MeetingTest, AnIdFormsOneCommunicatorOnly) {
  ASSERT_THAT(Join({Of(0, 0, 2), Of(1, 1, 2)}), ::testing::ElementsAre("", ""));
  for (const std::string& told : Join({Of(0, 0, 2), Of(1, 1, 2)})) {
    EXPECT_THAT(told, HasSubstr("formed a communicator already"));
  }
}

TEST_F(MeetingTest, ADaemonWithoutPeersSaysSo) {
  const auto alone = StartServing();
  Call call = Of(1, 1, 2);
  call.daemon = alone.get();
  EXPECT_THAT(Join({call})[0], HasSubstr("peers.listen"));
}

}  // namespace
}  // namespace spccl::testing
