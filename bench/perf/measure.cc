#include "bench/perf/measure.h"

#include <cstddef>
#include <cstring>

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
  void Restore() {
    if (!copy_.empty()) std::memcpy(backend_.send(), copy_.data(), copy_.size());
  }

 private:
  Backend& backend_;
  std::vector<std::byte> copy_;
};

absl::Status RunTimed(Team& team, Backend& backend, Input& input, int count,
                      std::vector<double>* times_us) {
  for (int i = 0; i < count; ++i) {
    input.Restore();
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
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  SPCCL_RETURN_IF_ERROR(backend.Run());
  double wrong = static_cast<double>(pattern.CountWrong(team.rank(), backend.recv()));
  SPCCL_RETURN_IF_ERROR(team.SumOverRanks({&wrong, 1}));
  return static_cast<uint64_t>(wrong);
}

void SetTraffic(const Traffic& before, const Traffic& after, int operations, Measurement* result) {
  const auto per_operation = [operations](uint64_t from, uint64_t to) {
    return static_cast<double>(to - from) / operations;
  };
  result->wire_bytes = per_operation(before.wire_bytes, after.wire_bytes);
  result->dense_bytes = per_operation(before.dense_bytes, after.dense_bytes);
  for (int i = 0; i < kFormatCount; ++i) {
    result->sends_by_format[i] = per_operation(before.sends_by_format[i], after.sends_by_format[i]);
  }
  const auto before_of = [](const std::map<std::string, uint64_t>& counts, const std::string& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  };
  for (const auto& [key, count] : after.decisions) {
    const double sends = per_operation(before_of(before.decisions, key), count);
    if (sends != 0) result->decisions[key] = sends;
  }
  for (const auto& [key, ns] : after.spent_ns) {
    result->spent_us[key] = per_operation(before_of(before.spent_ns, key), ns) / 1e3;
  }
}

}  // namespace

absl::StatusOr<Measurement> Measure(Team& team, Backend& backend, const Problem& problem,
                                    const Options& options) {
  SPCCL_RETURN_IF_ERROR(backend.Open(problem));
  const Pattern pattern(problem, options.seed, options.sparsity);
  std::memset(backend.recv(), 0,
              problem.recv_bytes());  // its pages are there before the clock runs
  pattern.Fill(team.rank(), backend.send());
  Input input(backend, problem);

  std::vector<double> warmup_times;
  SPCCL_RETURN_IF_ERROR(RunTimed(team, backend, input, options.warmup, &warmup_times));
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  Traffic before;
  if (team.rank() == 0) {
    SPCCL_ASSIGN_OR_RETURN(before, backend.ReadTraffic());
  }
  Measurement result;
  SPCCL_RETURN_IF_ERROR(RunTimed(team, backend, input, options.iters, &result.times_us));
  SPCCL_RETURN_IF_ERROR(team.Barrier());
  if (team.rank() == 0) {
    SPCCL_ASSIGN_OR_RETURN(const Traffic after, backend.ReadTraffic());
    SetTraffic(before, after, options.iters, &result);
  }
  SPCCL_RETURN_IF_ERROR(team.MaxOverRanks(result.times_us));
  if (options.check) {
    SPCCL_ASSIGN_OR_RETURN(result.wrong, CountWrong(team, backend, problem, pattern));
  }
  return result;
}

}  // namespace spccl::bench
