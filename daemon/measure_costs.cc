#include "daemon/measure_costs.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"

namespace spccl::daemon {
namespace {

constexpr uint64_t kSlice = uint64_t{64} << 10;  // elements: 256 KiB
// Slices are walked through as an operation does, more than the L2 cache holds: inputs come from
// memory and outputs go there.
constexpr uint64_t kElements = 32 * kSlice;
constexpr int kRepeats = 2;

// No run takes longer, so that a slow machine starts in time: it measures over less.
constexpr int64_t kLongestRunNs = 10'000'000;

// Bytes per second of the fastest run of `run(first element)` over the slices of `elements`. The
// first run, which takes the page faults, does not count.
template <typename Run>
double RateOf(const Run& run, uint64_t elements = kElements) {
  double best = 0;
  for (int i = 0; i <= kRepeats; ++i) {
    const int64_t start_ns = MonotonicNanos();
    int64_t took_ns = 0;
    uint64_t first = 0;
    for (; first < elements && took_ns < kLongestRunNs; first += kSlice) {
      run(first);
      took_ns = MonotonicNanos() - start_ns;
    }
    const double bytes = static_cast<double>(first) * sizeof(float);
    if (i > 0)
      best = std::max(best, bytes / (static_cast<double>(std::max<int64_t>(1, took_ns)) * 1e-9));
  }
  return best;
}

double CopyRate(const void* input, void* output, uint64_t elements) {
  const auto copy = [&](uint64_t first) {
    const uint64_t at = first * sizeof(float);
    void* const outputs[] = {static_cast<std::byte*>(output) + at};
    CopyToMany(static_cast<const std::byte*>(input) + at, outputs, kSlice * sizeof(float),
               /*streaming=*/true);
  };
  return RateOf(copy, elements);
}

// Where rates are measured: densities that sparse frames have. Between them, and on to 0 and 1,
// time is taken to be linear.
constexpr double kLow = 0.01, kHigh = 0.25;

// The same slice again and again.
std::vector<float> Elements(double density) {
  std::minstd_rand random(1);
  std::vector<float> elements(kElements);
  const double below = density * std::minstd_rand::max();
  for (uint64_t i = 0; i < kElements; ++i) {
    elements[i] = i >= kSlice ? elements[i - kSlice] : random() < below ? 1.0F : 0.0F;
  }
  return elements;
}

// Rates at densities of 0 and 1, by those at kLow and kHigh. What noise makes of them stays
// positive: nothing is five times as fast at 0 as at kLow, nothing faster at 1 than at kHigh.
void Extend(double at_low, double at_high, double* rate_0, double* rate_1) {
  const double slope = (1 / at_high - 1 / at_low) / (kHigh - kLow);
  *rate_0 = 1 / std::max(1 / at_low - kLow * slope, 0.2 / at_low);
  *rate_1 = 1 / std::max(1 / at_high + (1 - kHigh) * slope, 1 / at_high);
}

struct Rates {
  double encode, decode, combine;
};

Rates MeasureCodec(Format format, const std::vector<float>& input, std::vector<float>* output) {
  std::vector<std::byte> frame(MaxFrameBytes(format, DType::kFloat32, kSlice) + kEncodeSlack);
  float* const to = output->data();
  Rates rates;
  rates.encode = RateOf([&](uint64_t first) {
    Encode(format, DType::kFloat32, input.data() + first, kSlice, frame.data());
  });
  rates.decode =
      RateOf([&](uint64_t first) { Decode(frame.data(), to + first, Stores::kStreaming); });
  rates.combine =
      RateOf([&](uint64_t first) { ReduceInto(frame.data(), to + first, DType::kFloat32); });
  return rates;
}

// All cores at once, or as many as it takes to keep a memory busy, over more than a shared cache's
// part that one operation may hope for.
double StreamRate() {
  constexpr uint64_t kStreamed = 4 * kElements;
  const unsigned threads = std::min(4U, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<double> rates(threads);
  std::vector<std::jthread> running;  // joined also where there can be no more
  for (double& rate : rates) {
    running.emplace_back([&rate] {
      // Bytes: that is a memset, and no loop, which sanitizers would make slow.
      const std::vector<std::byte> input(kStreamed * sizeof(float), std::byte{1});
      std::vector<std::byte> output(input.size());
      rate = 2 * CopyRate(input.data(), output.data(), kStreamed);  // reads and writes
    });
  }
  running.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

policy::Costs MeasureCosts() {
  policy::Costs costs;
  const std::vector<float> low = Elements(kLow), high = Elements(kHigh);
  std::vector<float> output(kElements);
  const std::pair<Format, policy::CodecRates*> codecs[] = {
      {Format::kPici, &costs.pici}, {Format::kCoo, &costs.coo}, {Format::kGap, &costs.gap}};
  for (const auto& [format, rates] : codecs) {
    const Rates at_low = MeasureCodec(format, low, &output);
    const Rates at_high = MeasureCodec(format, high, &output);
    Extend(at_low.encode, at_high.encode, &rates->encode_0, &rates->encode_1);
    Extend(at_low.decode, at_high.decode, &rates->decode_0, &rates->decode_1);
    Extend(at_low.combine, at_high.combine, &rates->combine_0, &rates->combine_1);
  }
  costs.memory_rate = CopyRate(high.data(), output.data(), kElements);
  costs.stream_rate = StreamRate();
  costs.reduce_rate = RateOf([&](uint64_t first) {
    Accumulate(DType::kFloat32, RedOp::kSum, high.data() + first, output.data() + first, kSlice);
  });
  costs.cores = std::max(1U, std::thread::hardware_concurrency());
  return costs;
}

uint64_t MachineId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  if (!(file >> boot_id)) return 0;
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char letter : boot_id) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001B3;
  return hash;
}

}  // namespace spccl::daemon
