// How a link is measured.
#include <atomic>

#include "tests/collective/transport/ucx/fabric_support.h"

namespace spccl::transport::ucx {
namespace {

struct ProbeSetup {
  uint32_t workers0, workers1;
  bool rendezvous;
};
class ProbeTest : public ::testing::TestWithParam<ProbeSetup> {};

TEST_P(ProbeTest, BothEndsMeasureAtOnceAndOnce) {
  Pair pair(GetParam().workers0, GetParam().workers1, GetParam().rendezvous);
  EXPECT_EQ(pair.link[0]->counters().bytes_per_second, 0);
  Event done[2];
  for (int node : {0, 1}) pair.link[node]->Measure([&done, node] { done[node].Set(); });
  ASSERT_TRUE(done[0].Await());
  ASSERT_TRUE(done[1].Await());
  double rates[2];
  for (int node : {0, 1}) {
    const LinkCounters counters = pair.link[node]->counters();
    rates[node] = counters.bytes_per_second;
    // Between a line of a modem and the fastest memory.
    EXPECT_GT(rates[node], 1e4);
    EXPECT_LT(rates[node], 1e12);
    EXPECT_GT(counters.round_trip_ns, 0);
    EXPECT_EQ(counters.frames_sent + counters.bytes_sent + counters.frames_received, 0);
  }
  // What is known is told at once, by the caller's own thread.
  for (int node : {0, 1}) {
    bool told = false;
    pair.link[node]->Measure([&told] { told = true; });
    EXPECT_TRUE(told);
    EXPECT_EQ(pair.link[node]->counters().bytes_per_second, rates[node]);
    EXPECT_TRUE(pair.link[node]->status().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, ProbeTest,
                         ::testing::Values(ProbeSetup{1, 1, false}, ProbeSetup{1, 1, true},
                                           ProbeSetup{2, 2, false}, ProbeSetup{3, 1, false}));

TEST(LinkProbeTest, WhoeverAsksMeanwhileIsToldToo) {
  Pair pair(2, 2);
  constexpr int kAskers = 20;
  std::atomic<int> told{0};
  Event all;
  for (int i = 0; i < kAskers; ++i) {
    pair.link[0]->Measure([&] {
      if (++told == kAskers) all.Set();
    });
  }
  EXPECT_TRUE(all.Await());
  EXPECT_EQ(told, kAskers);
}

// Probes are no frames of an operation: the whole allowance for early ones is left beside them.
TEST(LinkProbeTest, EarlyFramesKeepTheirAllowance) {
  Pair pair;
  constexpr Key128 kKey{1, 2};
  const auto comm0 = pair.Open(0, kKey), comm1 = pair.Open(1, kKey);
  auto op0 = comm0->OpenOperation(Operation(1));
  ASSERT_TRUE(op0.ok());
  RecordingSink sink0, sink1;
  (*op0)->Start(&sink0);
  Event done;
  pair.link[0]->Measure([&] { done.Set(); });
  constexpr size_t kBytes = 100'000;
  constexpr size_t kFrames = kEarlyBytes / (kBytes + 512) - 1;  // beside what opens the operation
  for (size_t frame = 0; frame < kFrames; ++frame) {
    ASSERT_TRUE((*op0)->Send({.from = 0, .to = 1}, MakeFrame(kBytes, frame)).ok());
  }
  EXPECT_EQ(pair.link[0]->counters().frames_waiting, 0);
  ASSERT_TRUE(done.Await());
  auto op1 = comm1->OpenOperation(Operation(1));
  ASSERT_TRUE(op1.ok());
  (*op1)->Start(&sink1);
  const auto arrived = sink1.AwaitFrames(kFrames);
  ASSERT_EQ(arrived.size(), kFrames);
  for (size_t frame = 0; frame < kFrames; ++frame) {
    EXPECT_TRUE(Holds(arrived[frame].frame, kBytes, frame)) << frame;
  }
  EXPECT_TRUE(pair.link[1]->status().ok());
}

TEST(LinkProbeTest, ALinkThatHasEndedMeasuresNothing) {
  Pair pair;
  pair.fabric[0]->Disconnect(pair.link[0], absl::CancelledError("the end"));
  bool told = false;
  pair.link[0]->Measure([&told] { told = true; });
  EXPECT_FALSE(told);
  EXPECT_EQ(pair.link[0]->counters().bytes_per_second, 0);
}

}  // namespace
}  // namespace spccl::transport::ucx
