#include "ctl/flight_explain.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ctl/flight_sample.h"

namespace spccl::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using v1::FlightDoing;

// The same, `ms` later, but for what the test changes.
v1::FlightRecord Later(v1::FlightRecord record, int64_t ms) {
  record.set_now_ns(record.now_ns() + ms * kMilli);
  return record;
}

TEST(FlightExplainTest, ARankThatHasNotPostedIsNamedWithItsProcess) {
  v1::FlightRecord record = SampleRecord(3);
  AddEnded(&record, 6, 3100, 3000, {{0, 3200}, {1, 3200}, {2, 3200}});
  AddWaiting(&record, {{0, 2500}, {1, 2400}});
  record.mutable_members(2)->set_process("stopped");
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.Text(),
            "communicator 3 of job job-1: operation 7 (all_reduce count=8 float32 sum) waits for "
            "rank 2 (pid 102), which has not posted it\n"
            "  rank 2 (pid 102) has posted operation 6 last, which ended 3.0 s ago; its process is "
            "stopped, by SIGSTOP or a terminal\n"
            "  ranks 0 and 1 have posted it, the first 2.5 s ago\n"
            "  a second look 0 us later: still the same\n");
  EXPECT_EQ(explanation.phase, "not-posted");
  EXPECT_THAT(explanation.late_ranks, ElementsAre(2));
  EXPECT_FALSE(explanation.moving);
  EXPECT_EQ(explanation.Json()["late_ranks"], nlohmann::ordered_json({2}));
}

TEST(FlightExplainTest, SeveralThatHaveNotPostedAreAllNamed) {
  v1::FlightRecord record = SampleRecord(3);
  AddWaiting(&record, {{1, 100}});
  const Explanation explanation = Explain(record, record);
  EXPECT_THAT(explanation.verdict,
              HasSubstr("waits for rank 0 (pid 100) and rank 2 (pid 102), which have not posted"));
  EXPECT_THAT(explanation.late_ranks, ElementsAre(0, 2));
}

TEST(FlightExplainTest, NothingUnderWayIsIdle) {
  const v1::FlightRecord record = SampleRecord(2);
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "idle");
  EXPECT_THAT(explanation.verdict, HasSubstr("no rank has posted operation 7"));
  EXPECT_THAT(explanation.late_ranks, IsEmpty());
}

TEST(FlightExplainTest, FormingAndFailedSaySo) {
  v1::FlightRecord record = SampleRecord(2);
  record.set_state("forming");
  record.set_forming("rank 1");
  EXPECT_THAT(Explain(record, record).verdict, HasSubstr("it is forming: it waits for rank 1"));
  record.set_state("failed");
  record.set_error("rank 1 (pid 101) has ended");
  EXPECT_THAT(Explain(record, record).verdict, HasSubstr("has failed: rank 1 (pid 101) has ended"));
  EXPECT_EQ(Explain(record, record).phase, "failed");
}

TEST(FlightExplainTest, AKeptRecordHasNoSecondLook) {
  v1::FlightRecord record = SampleRecord(2);
  AddWaiting(&record, {{0, 1000}});
  record.set_reason("waiting for rank 1: too late");
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "not-posted");
  EXPECT_EQ(explanation.lines.back(), "so it was when it failed: waiting for rank 1: too late");
}

TEST(FlightExplainTest, ASecondLookTellsWhatMoved) {
  v1::FlightRecord first = SampleRecord(2);
  AddWaiting(&first, {{0, 1000}});
  v1::FlightRecord second = Later(first, 500);
  EXPECT_EQ(Explain(first, second).lines.back(), "a second look 500 ms later: still the same");
  EXPECT_FALSE(Explain(first, second).moving);
  second.set_next_sequence(10);
  second.clear_waiting();
  for (v1::FlightRank& member : *second.mutable_members()) member.set_next_sequence(10);
  const Explanation moved = Explain(first, second);
  EXPECT_TRUE(moved.moving);
  EXPECT_EQ(moved.lines.back(), "a second look 500 ms later: it moves, 3 operations ended");
  v1::FlightRecord runs = SampleRecord(2);
  SetRunning(&runs, 10, {{0, 20}, {1, 20}});
  v1::FlightRecord further = Later(runs, 500);
  further.set_progress(52);
  EXPECT_THAT(Explain(runs, further).lines.back(), HasSubstr("the operation did 12 steps"));
}

TEST(FlightExplainTest, WorkOfThisNodeIsSaid) {
  v1::FlightRecord record = SampleRecord(2);
  SetRunning(&record, 10, {{0, 60}, {1, 12}});
  AddDoing(&record, FlightDoing::KIND_RUNS, 0, 0, 9);
  Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "runs");
  EXPECT_THAT(explanation.Text(), HasSubstr("a thread is at reduce-store"));
  EXPECT_THAT(explanation.Text(), HasSubstr("rank 1 posted late, 48 ms after the first"));
  EXPECT_THAT(explanation.Text(), HasSubstr("2 of 6 slices"));
  record.clear_doing();
  AddDoing(&record, FlightDoing::KIND_QUEUED, 0, 0, 9);
  EXPECT_EQ(Explain(record, record).phase, "queued");
  record.clear_doing();
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_SLICE, 1, 0, 9);
  explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "wait-slice");
  EXPECT_THAT(explanation.late_ranks, ElementsAre(1));
  EXPECT_THAT(explanation.verdict, HasSubstr("rank 1 (pid 101) to hand its data over"));
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_SLICE, 0, 0, 9);
  explanation = Explain(record, record);
  EXPECT_THAT(explanation.late_ranks, ElementsAre(1, 0));
  EXPECT_THAT(explanation.verdict,
              HasSubstr("rank 1 (pid 101), rank 0 (pid 100) to hand their data over"));
  EXPECT_THAT(explanation.verdict, HasSubstr("one may wait for another"));
}

TEST(FlightExplainTest, ANodeWhoseDaemonDoesNotAnswerIsNamedWithTheLink) {
  v1::FlightRecord record = SampleOfTwoNodes(0);
  SetRunning(&record, 1500, {{0, 1600}, {1, 1600}});
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_FRAME, 0, 2, 1400);
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "wait-frame");
  EXPECT_EQ(explanation.node, "node-b");
  EXPECT_THAT(explanation.late_ranks, ElementsAre(2, 3));
  EXPECT_EQ(
      explanation.Text(),
      "communicator 3 of job job-1: operation 7 (all_reduce count=8 float32 sum) waits for "
      "frames from node-b, whose daemon does not answer\n"
      "  ranks 0 and 1 on node-a have posted it, the first 1.6 s ago\n"
      "  it runs on node-a by two-level-ring for 1.5 s: 2 of 6 slices\n"
      "  rank 0 on node-a waits in 4 slices for frames from rank 2 on node-b, the longest for "
      "1.4 s (next: reduce-store)\n"
      "  the link from node-a to node-b: tcp/eth0, 200 us round trip, 941 Mbit/s\n"
      "  look next at node-b (its daemon is at 10.0.0.2:7777): the daemon hangs or is "
      "stopped, or the network between is cut\n"
      "  a second look 0 us later: still the same\n");
}

TEST(FlightExplainTest, ARankOfAnotherNodeThatHasNotPostedIsNamed) {
  v1::FlightRecord record = SampleOfTwoNodes(0);
  SetRunning(&record, 1500, {{0, 1600}, {1, 1600}});
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_FRAME, 0, 2, 1400);
  v1::FlightRecord peer = SampleOfTwoNodes(1);
  AddWaiting(&peer, {{2, 1500}});
  peer.mutable_members(3)->set_process("traced");
  Answer(&record, peer);
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "not-posted");
  EXPECT_EQ(explanation.node, "node-b");
  EXPECT_THAT(explanation.late_ranks, ElementsAre(3));
  EXPECT_THAT(explanation.verdict,
              HasSubstr("waits for rank 3 (pid 103 on node-b), which has not posted it"));
  EXPECT_THAT(explanation.Text(), HasSubstr("its process is held by a debugger"));
  EXPECT_THAT(explanation.Text(), HasSubstr("look next at node-b: `spcclctl explain 9` there"));
}

TEST(FlightExplainTest, WaitsAreFollowedToTheNodeThatWorks) {
  v1::FlightRecord record = SampleOfTwoNodes(0);
  SetRunning(&record, 1500, {{0, 1600}, {1, 1600}});
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_FRAME, 0, 2, 1400);
  v1::FlightRecord peer = SampleOfTwoNodes(1);
  SetRunning(&peer, 1500, {{2, 1600}, {3, 1600}});
  AddDoing(&peer, FlightDoing::KIND_RUNS, 2, 0, 1300);
  Answer(&record, peer);
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "runs");
  EXPECT_EQ(explanation.node, "node-b");
  EXPECT_THAT(explanation.verdict, HasSubstr("runs on node-b: a thread is at reduce-store"));
}

TEST(FlightExplainTest, NodesThatWaitForEachOtherHaveFramesOnTheWay) {
  v1::FlightRecord record = SampleOfTwoNodes(0);
  SetRunning(&record, 1500, {{0, 1600}, {1, 1600}});
  AddDoing(&record, FlightDoing::KIND_WAITS_FOR_FRAME, 0, 2, 1400);
  v1::FlightRecord peer = SampleOfTwoNodes(1);
  SetRunning(&peer, 1500, {{2, 1600}, {3, 1600}});
  AddDoing(&peer, FlightDoing::KIND_WAITS_FOR_FRAME, 2, 0, 1300);
  Answer(&record, peer);
  EXPECT_THAT(Explain(record, record).verdict,
              HasSubstr("waits for frames that are on their way between node-b and node-a"));
}

TEST(FlightExplainTest, ANodeThatIsIdleLearnsThatTheOthersWaitForIt) {
  v1::FlightRecord record = SampleOfTwoNodes(0);  // none of its ranks has posted operation 7
  v1::FlightRecord peer = SampleOfTwoNodes(1);
  SetRunning(&peer, 1500, {{2, 1600}, {3, 1600}});
  AddDoing(&peer, FlightDoing::KIND_WAITS_FOR_FRAME, 2, 0, 1300);
  Answer(&record, peer);
  const Explanation explanation = Explain(record, record);
  EXPECT_EQ(explanation.phase, "not-posted");
  EXPECT_THAT(explanation.late_ranks, ElementsAre(0, 1));
  EXPECT_EQ(explanation.node, "");
}

TEST(FlightExplainTest, WhoIsLateAsARuleIsSaid) {
  v1::FlightRecord record = SampleRecord(2);
  for (uint64_t n = 0; n < 4; ++n) {
    const auto at = static_cast<int64_t>(9000 - 1000 * n);
    AddEnded(&record, n, at - 100, at - 200, {{0, at}, {1, at - 90}});
  }
  EXPECT_THAT(Explain(record, record).Text(),
              HasSubstr("rank 1 posted last in 4 of the last 4 operations, as a rule 90 ms after "
                        "the first"));
}

}  // namespace
}  // namespace spccl::ctl
