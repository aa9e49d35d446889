// Not a test: what the flight recorder does for one span, and for one operation.
//
//   flight_bench
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "collective/runtime/span_ring.h"
#include "daemon/flight_log.h"

namespace spccl::daemon {
namespace {

constexpr int kRepeats = 15, kTimes = 200'000;

// The median over repeats, in nanoseconds a call.
template <typename Work>
double Measure(const Work& work) {
  std::vector<double> each;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const int64_t begin_ns = MonotonicNanos();
    for (int i = 0; i < kTimes; ++i) work(i);
    each.push_back(static_cast<double>(MonotonicNanos() - begin_ns) / kTimes);
  }
  std::nth_element(each.begin(), each.begin() + kRepeats / 2, each.end());
  return each[kRepeats / 2];
}

void Run() {
  runtime::SpanRing ring(4096);
  std::printf("a span: %.1f ns\n", Measure([&ring](int i) {
                runtime::Span span{.operation = 1, .bytes = 4096, .rank = 0};
                span.SetTimes(i, i + 100);
                ring.Write(span);
              }));
  int64_t sum = 0;
  std::printf("a look at the clock: %.1f ns\n", Measure([&sum](int) { sum += MonotonicNanos(); }));
  for (const size_t ranks : {2, 8}) {
    FlightLog log;
    log.Open(64, ranks);
    const runtime::OpResult result;
    const std::string algorithm = "two-level-ring";
    std::printf("an operation of %zu ranks: %.1f ns\n", ranks, Measure([&](int i) {
                  FlightEntry* const entry = log.Next();
                  entry->sequence = entry->operation = static_cast<uint64_t>(i);
                  entry->algorithm = algorithm;
                  for (int64_t& posted_ns : entry->posted_ns) posted_ns = i;
                  entry->began_ns = entry->ended_ns = i;
                  entry->status = result.status;
                  entry->TakeStats(result.stats);
                }));
  }
  if (sum == 0) std::printf("no clock\n");
}

}  // namespace
}  // namespace spccl::daemon

int main() {
  spccl::daemon::Run();
}
