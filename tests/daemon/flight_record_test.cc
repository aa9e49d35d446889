#include "daemon/flight_record.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

using runtime::Span;

Span SpanAt(uint64_t operation, int64_t begin_ns) {
  Span span{.operation = operation, .rank = 2, .kind = runtime::SpanKind::kReduce};
  span.SetTimes(begin_ns, begin_ns + 10);
  return span;
}

TEST(FlightRecordTest, SpansAreOfItsOperationsAndInTheOrderOfTime) {
  FlightDraft draft;
  draft.sequence_of = {{41, 6}, {42, 7}};
  AddSpans({{0, {SpanAt(41, 300), SpanAt(40, 100)}}, {1, {SpanAt(42, 200), SpanAt(43, 250)}}},
           &draft);
  ASSERT_EQ(draft.record.spans_size(), 2);
  const v1::FlightSpan& first = draft.record.spans(0);
  EXPECT_EQ(first.sequence(), 7U);
  EXPECT_EQ(first.channel(), 1U);
  EXPECT_EQ(first.begin_ns(), 200);
  EXPECT_EQ(first.duration_ns(), 10U);
  EXPECT_EQ(first.kind(), v1::FlightSpan::KIND_REDUCE);
  EXPECT_EQ(first.rank(), 2U);
  EXPECT_FALSE(first.has_peer());
  EXPECT_FALSE(first.has_density());
  EXPECT_EQ(draft.record.spans(1).sequence(), 6U);
}

TEST(FlightRecordTest, TheNewestSpansAreKept) {
  FlightDraft draft;
  draft.sequence_of = {{1, 0}};
  std::vector<Span> spans;
  for (size_t i = 0; i < kMostSpans + 5; ++i) spans.push_back(SpanAt(1, static_cast<int64_t>(i)));
  AddSpans({{1, spans}}, &draft);
  ASSERT_EQ(draft.record.spans_size(), static_cast<int>(kMostSpans));
  EXPECT_EQ(draft.record.spans(0).begin_ns(), 5);
  // A record goes in one message of gRPC's default size, with room for all else.
  EXPECT_LT(draft.record.ByteSizeLong(), size_t{3} << 20);
}

TEST(FlightRecordTest, ProcessesAreAsTheKernelSays) {
  EXPECT_EQ(ProcessStateOf("12 (a program) S 1 12 12"), "sleeping");
  EXPECT_EQ(ProcessStateOf("12 (evil) R) T 1 12 12"), "stopped");
  EXPECT_EQ(ProcessStateOf("12 (x) t 1"), "traced");
  EXPECT_EQ(ProcessStateOf("12 (x) Z 1"), "gone");
  EXPECT_EQ(ProcessStateOf("12 (x)"), "");
  EXPECT_EQ(ProcessStateOf(""), "");
  v1::FlightRecord record;
  record.add_members()->set_pid(::getpid());
  v1::FlightRank& elsewhere = *record.add_members();
  elsewhere.set_pid(::getpid());
  elsewhere.set_node("node-b");
  AddProcesses(&record);
  EXPECT_EQ(record.members(0).process(), "running");
  EXPECT_EQ(record.members(1).process(), "");
}

}  // namespace
}  // namespace spccl::daemon
