// Measures every way to run every case, by spccl-perf, and keeps what it measures at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/tune/record.h"
#include "bench/tune/samples.h"

namespace spccl::tune {

struct SweepOptions {
  std::vector<OpKind> ops = {OpKind::kAllReduce};
  std::vector<uint32_t> nodes = {2};
  std::vector<uint32_t> ranks = {1};  // a node
  std::vector<uint64_t> bytes;
  std::vector<double> sparsities;
  std::vector<std::string> algorithms;      // those without a plan for an operation are left out
  std::vector<uint64_t> slices = {0};       // 0: by the density
  std::vector<uint32_t> channels = {0};     // the best of several is found first
  uint32_t rounds = 1, iters = 9;           // iters: operations a round, of small ones
  std::string perf;                         // spccl-perf
  std::vector<std::string> perf_arguments;  // more of them, such as --launcher
  std::string csv;                          // the file of samples
  std::string record;                       // the file of what they were measured with
  int64_t limit_ns = 600'000'000'000;       // of one launch of spccl-perf
};

// One run of spccl-perf: the ways take turns in it.
struct Launch {
  Case at;
  std::vector<std::string> ways{};
};
// Those that find the best number of channels, by the cost model's choice; none if there is one
// only.
std::vector<Launch> ChannelLaunches(const SweepOptions& options);
std::vector<Launch> PlanLaunches(const SweepOptions& options, uint32_t channels);

// Of the numbers that were measured in every case, the fewest channels that are within 2% of the
// best, by the mean of times relative to the best; options.channels[0] if there is one only.
struct ChannelChoice {
  std::optional<uint32_t> best{};    // nothing if none was measured in every case
  std::vector<uint32_t> left_out{};  // not measured in every case: some launch failed
};
ChannelChoice BestChannels(const SweepOptions& options, const std::vector<Sample>& samples);
// Of what is there, the number of channels to learn for: options.channels[0] if there is one only,
// else that of the record, or without one that which most samples of plans have.
uint32_t ChannelsToLearn(const SweepOptions& options, const Record& record,
                         const std::vector<Sample>& samples);

// How a sweep ended.
struct SweepEnd {
  bool interrupted = false;
  int failed = 0;  // launches, which were told on standard error; the next sweep tries plans again
  int ran = 0;
  uint32_t channels = 0;  // that plans were measured with
};
// What options.csv has already is not measured again, and the number of channels that was chosen
// once stays, as what was measured with it does, unless options.channels differs. Tells its
// progress on standard error: a bar if that is a terminal, else a line a launch. `interrupt` ends
// it soon, with the launch's own end.
absl::StatusOr<SweepEnd> Sweep(const SweepOptions& options, const std::atomic<bool>& interrupt);

}  // namespace spccl::tune
