#include "ctl/flight_trace.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ctl/flight_summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ctl/flight_sample.h"
#include "tests/support/trace_check.h"

namespace spccl::ctl {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using v1::FlightSpan;

FlightSpan* AddSpan(v1::FlightRecord* record, FlightSpan::Kind kind, uint32_t channel,
                    int64_t ago_us, uint32_t for_us) {
  FlightSpan* const span = record->add_spans();
  span->set_kind(kind);
  span->set_sequence(6);
  span->set_channel(channel);
  span->set_begin_ns(kNow - ago_us * 1000);
  span->set_duration_ns(for_us * 1000);
  span->set_rank(0);
  return span;
}

// Operation 6 has ended, with spans; 7 waits for rank 1; rank 0 had posted both ahead.
v1::FlightRecord Sample() {
  v1::FlightRecord record = SampleRecord(2);
  AddEnded(&record, 5, 50, 40, {{0, 60}, {1, 55}});
  v1::FlightOp* const op = AddEnded(&record, 6, 10, 2, {{0, 58}, {1, 12}});
  op->set_dense_bytes(4000);
  op->set_wire_bytes(1000);
  op->set_input_elements(1000);
  op->set_input_nnz(100);
  v1::FlightCount* const sends = op->add_sends_by_format();
  sends->set_name("pici");
  sends->set_count(2);
  AddWaiting(&record, {{0, 57}});
  FlightSpan* const encode = AddSpan(&record, FlightSpan::KIND_ENCODE, 1, 9000, 500);
  encode->set_peer(1);
  encode->set_format(1);
  encode->set_density(0.25f);
  encode->set_bytes(512);
  AddSpan(&record, FlightSpan::KIND_SEND, 1, 8500, 10)->set_peer(1);
  AddSpan(&record, FlightSpan::KIND_LOCAL, 2, 8400, 300)->clear_rank();
  // Two slices that wait at the same time.
  AddSpan(&record, FlightSpan::KIND_WAIT_FRAME, 1, 8000, 4000)->set_peer(1);
  AddSpan(&record, FlightSpan::KIND_WAIT_FRAME, 2, 7000, 4000)->set_peer(1);
  AddSpan(&record, FlightSpan::KIND_REDUCE, 1, 3000, 500)->set_peer(1);
  return record;
}

std::vector<ordered_json> Named(const ordered_json& trace, const std::string& name) {
  std::vector<ordered_json> events;
  for (const ordered_json& event : trace["traceEvents"]) {
    if (event["name"] == name) events.push_back(event);
  }
  return events;
}

TEST(FlightTraceTest, IsATraceThatViewersTake) {
  const ordered_json trace = TraceOf({Sample()});
  EXPECT_EQ(testing::FaultOfTrace(nlohmann::json::parse(trace.dump())), "");
  EXPECT_EQ(testing::FaultOfTrace(nlohmann::json::parse(TraceOf({}).dump())), "");
}

TEST(FlightTraceTest, ShowsWhatThreadsDidWithFormatAndDensity) {
  const ordered_json trace = TraceOf({Sample()});
  const auto encodes = Named(trace, "encode");
  ASSERT_EQ(encodes.size(), 1U);
  EXPECT_EQ(encodes[0]["dur"], 500.0);
  EXPECT_EQ(encodes[0]["tid"], 2);
  EXPECT_EQ(encodes[0]["args"]["operation"], 6);
  EXPECT_EQ(encodes[0]["args"]["peer"], 1);
  EXPECT_EQ(encodes[0]["args"]["format"], "pici");
  EXPECT_EQ(encodes[0]["args"]["density"], 0.25);
  EXPECT_EQ(encodes[0]["args"]["bytes"], 512);
  EXPECT_FALSE(Named(trace, "local")[0]["args"].contains("format"));
  EXPECT_EQ(Named(trace, "reduce").size(), 1U);
}

TEST(FlightTraceTest, ShowsRanksOperationsOneAfterTheOther) {
  const ordered_json trace = TraceOf({Sample()});
  const auto sixth = Named(trace, "all_reduce #6");
  ASSERT_EQ(sixth.size(), 2U);
  // Rank 0 posted it while operation 5 ran: it is shown from that one's end on.
  EXPECT_EQ(sixth[0]["tid"], 1);
  EXPECT_EQ(sixth[0]["dur"], 38'000.0);
  EXPECT_EQ(sixth[0]["args"]["posted_ahead_us"], 18'000.0);
  EXPECT_EQ(sixth[0]["args"]["wire_bytes"], 1000);
  EXPECT_EQ(sixth[0]["args"]["sends_by_format"]["pici"], 2);
  EXPECT_EQ(sixth[0]["args"]["input_density"], 0.1);
  EXPECT_EQ(sixth[1]["dur"], 10'000.0);
  const auto seventh = Named(trace, "all_reduce #7");
  ASSERT_EQ(seventh.size(), 1U);
  EXPECT_TRUE(seventh[0]["args"]["unfinished"].get<bool>());
  EXPECT_EQ(Named(trace, "waits for rank 1").size(), 2U);  // rank 0 in operations 5 and 6
  EXPECT_EQ(Named(trace, "waits for other ranks").size(), 1U);
}

TEST(FlightTraceTest, WaitsThatOverlapHaveTracksOfTheirOwn) {
  const auto waits = Named(TraceOf({Sample()}), "wait for a frame");
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_NE(waits[0]["tid"], waits[1]["tid"]);
}

TEST(FlightTraceTest, NodesStandSideBySideByTheTimeOfDay) {
  v1::FlightRecord a = SampleOfTwoNodes(0), b = SampleOfTwoNodes(1);
  AddEnded(&a, 6, 10, 2, {{0, 12}});
  AddEnded(&b, 6, 10, 2, {{2, 12}});
  b.set_unix_ns(a.unix_ns() + 5 * kMilli);  // the same, five milliseconds later
  const ordered_json trace = TraceOf({a, b});
  EXPECT_EQ(testing::FaultOfTrace(nlohmann::json::parse(trace.dump())), "");
  const auto ops = Named(trace, "all_reduce #6");
  ASSERT_EQ(ops.size(), 2U);
  EXPECT_NE(ops[0]["pid"], ops[1]["pid"]);
  EXPECT_EQ(ops[1]["ts"].get<double>() - ops[0]["ts"].get<double>(), 5000.0);
}

TEST(FlightTraceTest, AFailureIsAnInstant) {
  v1::FlightRecord record = Sample();
  record.set_reason("rank 1 (pid 101) has ended");
  const auto failures = Named(TraceOf({record}), "failed: rank 1 (pid 101) has ended");
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0]["ph"], "i");
}

TEST(FlightTraceTest, TheCheckItselfFindsFaults) {
  const auto fault = [](const char* text) {
    return testing::FaultOfTrace(nlohmann::json::parse(text));
  };
  EXPECT_NE(fault(R"({})"), "");
  EXPECT_NE(fault(R"({"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1}]})"), "");
  EXPECT_NE(fault(R"({"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":2,"dur":1},
                                     {"ph":"X","name":"b","pid":1,"tid":1,"ts":1,"dur":1}]})"),
            "");
  EXPECT_NE(fault(R"({"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},
                                     {"ph":"X","name":"b","pid":1,"tid":1,"ts":2,"dur":2}]})"),
            "");
  EXPECT_EQ(fault(R"({"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},
                                     {"ph":"X","name":"b","pid":1,"tid":2,"ts":1,"dur":2}]})"),
            "");
}

TEST(FlightSummaryTest, IsAPageOfText) {
  EXPECT_EQ(SummaryOf(Sample()),
            R"(communicator 3 of job job-1 (uid 1000): 2 ranks, ready
2 operations kept, #5 to #6; 6 spans of work and waits
1 operation waits, from #7 on

OPERATION                       BY     ENDED  FAILED  LAST RANK  QUEUED    RAN    SENT    DENSE  INPUT   FORMATS
all_reduce count=8 float32 sum  local      2       0      46 ms    5 ms  10 ms  1000 B  3.9 KiB  0.9000  2 pici

RANK              LAST OF ALL  BEHIND THE FIRST  AT MOST
rank 0 (pid 100)       0 of 2              0 us     0 us
rank 1 (pid 101)       2 of 2             46 ms    46 ms

WAITED  FOR FRAMES OF  NODE  WAITS  ALTOGETHER
rank 0  rank 1         -         2        8 ms
)");
}

}  // namespace
}  // namespace spccl::ctl
