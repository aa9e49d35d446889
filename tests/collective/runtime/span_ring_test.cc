#include "collective/runtime/span_ring.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::runtime {
namespace {

// A span whose every field follows from one number, so that a torn one shows.
Span SpanOf(uint64_t n) {
  Span span{.operation = n,
            .bytes = static_cast<uint32_t>(3 * n),
            .rank = static_cast<uint32_t>(5 * n),
            .peer = static_cast<uint32_t>(7 * n),
            .lane = static_cast<uint32_t>(11 * n),
            .chunk = static_cast<uint32_t>(13 * n),
            .kind = SpanKind::kSend,
            .format = Format::kCoo,
            .phase = Phase::kAllGather,
            .link = policy::Link::kInter,
            .density = static_cast<float>(n % 1000) / 1000};
  span.SetTimes(static_cast<int64_t>(n), static_cast<int64_t>(n + n % 1000));
  return span;
}

bool IsWhole(const Span& span) {
  const Span expected = SpanOf(span.operation);
  return span.begin_ns == expected.begin_ns && span.duration_ns == expected.duration_ns &&
         span.bytes == expected.bytes && span.rank == expected.rank && span.peer == expected.peer &&
         span.lane == expected.lane && span.chunk == expected.chunk && span.kind == expected.kind &&
         span.format == expected.format && span.phase == expected.phase &&
         span.link == expected.link && span.density == expected.density;
}

std::vector<uint64_t> OperationsIn(const SpanRing& ring) {
  std::vector<uint64_t> operations;
  for (const Span& span : ring.Read()) operations.push_back(span.operation);
  return operations;
}

TEST(SpanRingTest, KeepsTheNewestInTheirOrder) {
  SpanRing ring(4);
  EXPECT_THAT(OperationsIn(ring), ::testing::IsEmpty());
  for (uint64_t n = 1; n <= 3; ++n) ring.Write(SpanOf(n));
  EXPECT_THAT(OperationsIn(ring), ::testing::ElementsAre(1, 2, 3));
  for (uint64_t n = 4; n <= 10; ++n) ring.Write(SpanOf(n));
  EXPECT_THAT(OperationsIn(ring), ::testing::ElementsAre(7, 8, 9, 10));
  for (const Span& span : ring.Read()) EXPECT_TRUE(IsWhole(span));
}

TEST(SpanRingTest, RoundsItsSizeUp) {
  SpanRing ring(5);
  for (uint64_t n = 1; n <= 20; ++n) ring.Write(SpanOf(n));
  EXPECT_EQ(OperationsIn(ring).size(), 8U);
  SpanRing least(0);
  least.Write(SpanOf(1));
  EXPECT_THAT(OperationsIn(least), ::testing::ElementsAre(1));
}

TEST(SpanRingTest, ADurationThatDoesNotFitIsTheMostThatDoes) {
  Span span;
  span.SetTimes(5, 5 + int64_t{10'000'000'000});
  EXPECT_EQ(span.begin_ns, 5);
  EXPECT_EQ(span.duration_ns, UINT32_MAX);
}

TEST(SpanRingTest, IsOfOneThread) {
  SpanRing ring(4);
  SpanRing::SetOfThisThread(&ring);
  std::thread([] { EXPECT_EQ(SpanRing::OfThisThread(), nullptr); }).join();
  EXPECT_EQ(SpanRing::OfThisThread(), &ring);
  SpanRing::SetOfThisThread(nullptr);
}

TEST(SpanRingTest, ReadersSeeWholeSpansWhileOneIsWritten) {
  SpanRing ring(64);  // so small that readers are overtaken all the time
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t n = 1; !stop.load(std::memory_order_relaxed); ++n) ring.Write(SpanOf(n));
  });
  uint64_t seen = 0;
  // Until enough was read, however the threads are scheduled.
  while (seen < 20'000) {
    uint64_t last = 0;
    for (const Span& span : ring.Read()) {
      ASSERT_TRUE(IsWhole(span)) << span.operation;
      ASSERT_GT(span.operation, last);
      last = span.operation;
      ++seen;
    }
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
}

}  // namespace
}  // namespace spccl::runtime
