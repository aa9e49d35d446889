#include "bench/perf/measure.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "bench/perf/pattern.h"

namespace spccl::bench {
namespace {

// Keeps a copy of the input where the operation overwrites it.
class Input {
 public:
  Input(Backend& backend, const Problem& problem) : backend_(backend) {
    if (!backend.overwrites_input()) return;
    const auto* begin = static_cast<const std::byte*>(backend.send());
    copy_.assign(begin, begin + problem.send_bytes());
  }
  absl::Status Restore() {
    if (copy_.empty()) return absl::OkStatus();
    std::memcpy(backend_.send(), copy_.data(), copy_.size());
    return backend_.ToDevice();
  }

 private:
  Backend& backend_;
  std::vector<std::byte> copy_;
};

absl::Status RunTimed(Team& team, Backend& backend, Input& input, int count,
                      std::vector<double>* times_us) {
  for (int i = 0; i < count; ++i) {
    SPCCL_RETURN_IF_ERROR(input.Restore());
    SPCCL_RETURN_IF_ERROR(team.Barrier());
    const int64_t begin = MonotonicNanos();
    SPCCL_RETURN_IF_ERROR(backend.Run());
    times_us->push_back(static_cast<double>(MonotonicNanos() - begin) / 1e3);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CountWrong(Team& team, Backend& backend, const Problem& problem,
                                    const Pattern& pattern) {
  std::memset(backend.recv(), 0x5a, problem.recv_bytes());
  pattern.Fill(team.rank(), backend.send());  // after it: the two may overlap
  SPCCL_RETURN_IF_ERROR(backend.ToDevice());
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  SPCCL_RETURN_IF_ERROR(backend.Run());
  SPCCL_RETURN_IF_ERROR(backend.FromDevice());
  double wrong = static_cast<double>(pattern.CountWrong(team.rank(), backend.recv()));
  SPCCL_RETURN_IF_ERROR(team.SumOverRanks({&wrong, 1}));
  return static_cast<uint64_t>(wrong);
}

// What was sent between two readings, added to *sum.
void AddDifference(const Traffic& before, const Traffic& after, Traffic* sum) {
  sum->wire_bytes += after.wire_bytes - before.wire_bytes;
  sum->dense_bytes += after.dense_bytes - before.dense_bytes;
  for (int i = 0; i < kFormatCount; ++i) {
    sum->sends_by_format[i] += after.sends_by_format[i] - before.sends_by_format[i];
  }
  const auto add = [](const std::map<std::string, uint64_t>& from,
                      const std::map<std::string, uint64_t>& to,
                      std::map<std::string, uint64_t>* into) {
    for (const auto& [key, count] : to) {
      const auto found = from.find(key);
      (*into)[key] += count - (found == from.end() ? 0 : found->second);
    }
  };
  add(before.decisions, after.decisions, &sum->decisions);
  add(before.spent_ns, after.spent_ns, &sum->spent_ns);
  sum->last_sends = after.last_sends;
  sum->ran = after.ran;
}

void SetTraffic(const Traffic& sum, Measurement* result) {
  const auto per_operation = [&](uint64_t all) {
    return static_cast<double>(all) / static_cast<double>(result->times_us.size());
  };
  result->wire_bytes = per_operation(sum.wire_bytes);
  result->dense_bytes = per_operation(sum.dense_bytes);
  for (int i = 0; i < kFormatCount; ++i) {
    result->sends_by_format[i] = per_operation(sum.sends_by_format[i]);
  }
  for (const auto& [key, count] : sum.decisions) {
    if (count != 0) result->decisions[key] = per_operation(count);
  }
  for (const auto& [key, ns] : sum.spent_ns) result->spent_us[key] = per_operation(ns) / 1e3;
  result->last_sends = sum.last_sends;
  result->ran = sum.ran;
}

// `count` measured operations; the result's times of all of them are this rank's own.
absl::Status MeasureTurn(Team& team, Backend& backend, Input& input, int count, Traffic* traffic,
                         Measurement* result) {
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  Traffic before;
  if (team.rank() == 0) {
    SPCCL_ASSIGN_OR_RETURN(before, backend.ReadTraffic());
  }
  SPCCL_RETURN_IF_ERROR(RunTimed(team, backend, input, count, &result->times_us));
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  if (team.rank() != 0) return absl::OkStatus();
  SPCCL_ASSIGN_OR_RETURN(const Traffic after, backend.ReadTraffic());
  AddDifference(before, after, traffic);
  return absl::OkStatus();
}

// Operations of a warm-up that is limited in time which run in any case: the last one's time
// counts.
constexpr int kTimedWarmUp = 3;

// Whether operations may be faster after many than after few: a communicator tries ways where codec
// and thresholds are auto, as they may be where a setting leaves them alone.
bool Learns(const Setting& setting) {
  return setting.codec.empty() || (setting.codec == "auto" && setting.threshold == -1);
}

// `seconds`: 0 for no limit.
absl::Status WarmUp(Team& team, Backend& backend, Input& input, int at_most, double seconds) {
  std::vector<double> times;
  if (seconds == 0 || at_most <= kTimedWarmUp) {
    return RunTimed(team, backend, input, at_most, &times);
  }
  SPCCL_RETURN_IF_ERROR(RunTimed(team, backend, input, kTimedWarmUp, &times));
  // The slowest rank's, so that all run as many.
  SPCCL_RETURN_IF_ERROR(team.MaxOverRanks(times));
  const double fit = seconds * 1e6 / std::max(times.back(), 1.0);
  const auto more = static_cast<int>(std::clamp<double>(fit, kTimedWarmUp, at_most));
  return RunTimed(team, backend, input, more - kTimedWarmUp, &times);
}

// Operations that a setting is in force for, at a time: the first is not measured.
constexpr int kTurn = 4;

absl::Status TakeTurns(Team& team, Backend& backend, Input& input, const Options& options,
                       std::vector<Traffic>* traffic, std::vector<Measurement>* results) {
  for (const Setting& setting : options.settings) {
    SPCCL_RETURN_IF_ERROR(team.Barrier());
    if (team.rank() == 0) SPCCL_RETURN_IF_ERROR(backend.Apply(setting));
    const bool few = options.warmup_seconds > 0 && !Learns(setting);
    const int at_most = few ? std::min(options.warmup, kTimedWarmUp) : options.warmup;
    SPCCL_RETURN_IF_ERROR(WarmUp(team, backend, input, at_most, options.warmup_seconds));
  }
  for (int done = 0; done < options.iters; done += kTurn - 1) {
    for (size_t i = 0; i < options.settings.size(); ++i) {
      SPCCL_RETURN_IF_ERROR(team.Barrier());
      if (team.rank() == 0) SPCCL_RETURN_IF_ERROR(backend.Apply(options.settings[i]));
      std::vector<double> first;
      SPCCL_RETURN_IF_ERROR(RunTimed(team, backend, input, 1, &first));
      SPCCL_RETURN_IF_ERROR(MeasureTurn(team, backend, input,
                                        std::min(kTurn - 1, options.iters - done), &(*traffic)[i],
                                        &(*results)[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMemoryUse(const DeviceMemoryUse& memory, const Options& options) {
  if (!options.handed_over || memory.handed_over) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--handed-over: memory is ", memory.text));
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> Measure(Team& team, Backend& backend,
                                                 const Problem& problem, const Options& options) {
  SPCCL_RETURN_IF_ERROR(backend.Open(problem));
  const Pattern pattern(problem, options.seed, options.sparsity, options.clustered);
  std::memset(backend.recv(), 0,
              problem.recv_bytes());  // its pages are there before the clock runs
  pattern.Fill(team.rank(), backend.send());
  SPCCL_RETURN_IF_ERROR(backend.ToDevice());
  Input input(backend, problem);

  std::vector<Measurement> results(std::max<size_t>(1, options.settings.size()));
  std::vector<Traffic> traffic(results.size());
  if (options.settings.empty()) {
    SPCCL_RETURN_IF_ERROR(WarmUp(team, backend, input, options.warmup, options.warmup_seconds));
    SPCCL_RETURN_IF_ERROR(
        MeasureTurn(team, backend, input, options.iters, &traffic[0], &results[0]));
  } else {
    SPCCL_RETURN_IF_ERROR(TakeTurns(team, backend, input, options, &traffic, &results));
  }
  DeviceMemoryUse memory;
  if (team.rank() == 0) {  // after operations, as it is they that hand memory over
    SPCCL_ASSIGN_OR_RETURN(memory, backend.ReadMemoryUse());
    SPCCL_RETURN_IF_ERROR(CheckMemoryUse(memory, options));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (team.rank() == 0) SetTraffic(traffic[i], &results[i]);
    results[i].memory = memory;
    results[i].device_name = backend.device_name();
    SPCCL_RETURN_IF_ERROR(team.MaxOverRanks(results[i].times_us));
    if (!options.check) continue;
    if (!options.settings.empty() && team.rank() == 0) {
      SPCCL_RETURN_IF_ERROR(backend.Apply(options.settings[i]));
    }
    SPCCL_ASSIGN_OR_RETURN(results[i].wrong, CountWrong(team, backend, problem, pattern));
  }
  return results;
}

}  // namespace spccl::bench
