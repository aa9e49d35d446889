#include "bench/perf/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spccl::bench {
namespace {

std::map<std::string, double> SendsByPhase(const Measurement& measured) {
  std::map<std::string, double> sends;
  for (const auto& [key, count] : measured.decisions) sends[key.substr(0, key.find('/'))] += count;
  return sends;
}

std::string Frames(const Measurement& measured) {
  if (measured.dense_bytes == 0) return absl::StrFormat("%9s  -", "-");
  std::string sends;
  for (int i = 0; i < kFormatCount; ++i) {
    if (measured.sends_by_format[i] == 0) continue;
    absl::StrAppend(&sends, sends.empty() ? "" : " ", std::string(NameOf(static_cast<Format>(i))),
                    ":", measured.sends_by_format[i]);
  }
  for (const auto& [phase, count] : SendsByPhase(measured)) {
    absl::StrAppend(&sends, " ", phase, ":", count);
  }
  for (const auto& [what, us] : measured.spent_us) {
    absl::StrAppend(&sends, " ", what, ":", absl::StrFormat("%.0fus", us));
  }
  return absl::StrFormat("%9.4f  %s", measured.wire_bytes / measured.dense_bytes, sends);
}

nlohmann::ordered_json ToJson(const SendStep& step) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return {{"step", step.step},
          {"phase", step.phase},
          {"link", step.link},
          {"formats", step.formats},
          {"runners_up", step.runners_up},
          {"forecast_us", us(step.chosen_ns)},
          {"forecast_runner_up_us", us(step.runner_up_ns)},
          {"forecast_encode_us", us(step.predicted_encode_ns)},
          {"encode_us", us(step.encode_ns)},
          {"forecast_wire_us", us(step.predicted_wire_ns)},
          {"wire_us", us(step.wire_ns)}};
}

// Which plan ran, where the head of the table does not say it.
std::string Ran(const Options& options, const Setting* setting, const Measurement& measured) {
  const bool own = setting != nullptr && !setting->algo.empty();
  const std::string& asked = own ? setting->algo : options.algo;
  const bool told = asked == "auto" ? options.nodes == 1 : asked == measured.ran;
  return told || measured.ran.empty() ? "" : absl::StrCat("  ran ", measured.ran);
}

}  // namespace

Summary Summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double p50 = values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const size_t p99 = (99 * values.size() + 99) / 100 - 1;
  return {.min = values.front(),
          .p50 = p50,
          .mean = sum / static_cast<double>(values.size()),
          .p99 = values[p99]};
}

std::string TableHead(std::string_view tool, const Options& options) {
  return absl::StrCat(
      "# ", std::string(tool), ": ", std::string(NameOf(options.op)), " of ",
      std::string(NameOf(options.dtype)),
      Reduces(options.op) ? absl::StrCat(", ", std::string(NameOf(options.redop))) : "", ", ",
      options.ranks, " ranks",
      options.nodes > 1 ? absl::StrCat(" on ", options.nodes, " nodes") : "", ", sparsity ",
      options.sparsity, ", seed ", options.seed, ", algo ", options.algo, ", codec ", options.codec,
      ", buffers ", options.buffers,
      options.device == "host" ? "" : absl::StrCat(", device ", options.device),
      options.captured ? ", captured" : "", options.in_place ? ", in place" : "", ", ",
      options.iters, " iterations after ", options.warmup_seconds > 0 ? "up to " : "",
      options.warmup, "\n",
      absl::StrFormat("#%12s %10s %10s %10s %9s %9s %7s %9s  %s\n", "bytes", "min us", "p50 us",
                      "mean us", "algbw GB/s", "busbw GB/s", "wrong", "wire/dense",
                      "sends by format and phase, threads' time"));
}

std::string TableRow(const Problem& problem, const Options& options, const Setting* setting,
                     const Measurement& measured) {
  const Summary time = Summarize(measured.times_us);
  const double algbw = AlgorithmBandwidth(problem.bytes, time.p50);
  return absl::StrFormat(
      "%13d %10.2f %10.2f %10.2f %10.3f %10.3f %7s %s%s%s\n", problem.bytes, time.min, time.p50,
      time.mean, algbw, algbw * BusFactor(problem.op.kind, problem.ranks),
      options.check ? absl::StrCat(measured.wrong) : "-", Frames(measured),
      Ran(options, setting, measured), setting != nullptr ? "  " + setting->name : "");
}

std::string JsonLine(std::string_view tool, const Problem& problem, const Options& options,
                     const Setting* setting, const Measurement& measured) {
  const Summary time = Summarize(measured.times_us);
  const double algbw = AlgorithmBandwidth(problem.bytes, time.p50);
  nlohmann::ordered_json line = {
      {"tool", tool},
      {"op", NameOf(problem.op.kind)},
      {"dtype", NameOf(problem.op.dtype)},
      {"redop", NameOf(problem.op.redop)},
      {"algo", options.algo},
      {"ran", measured.ran},
      {"codec", options.codec},
      {"ranks", problem.ranks},
      {"nodes", options.nodes},
      {"bytes", problem.bytes},
      {"sparsity", options.sparsity},
      {"positions", options.clustered ? "clustered" : "uniform"},
      {"seed", options.seed},
      {"buffers", options.buffers},
      {"device", options.device},
      {"device_name", nullptr},
      {"memory", nullptr},
      {"captured", options.captured},
      {"in_place", options.in_place},
      {"iters", options.iters},
      {"time_us_min", time.min},
      {"time_us_p50", time.p50},
      {"time_us_mean", time.mean},
      {"time_us_p99", time.p99},
      {"algbw_gbps", algbw},
      {"busbw_gbps", algbw * BusFactor(problem.op.kind, problem.ranks)},
      {"wire_bytes", measured.wire_bytes},
      {"dense_bytes", measured.dense_bytes},
  };
  if (!measured.device_name.empty()) line["device_name"] = measured.device_name;
  if (!measured.memory.text.empty()) line["memory"] = measured.memory.text;
  for (int i = 0; i < kFormatCount; ++i) {
    line["sends"][std::string(NameOf(static_cast<Format>(i)))] = measured.sends_by_format[i];
  }
  line["sends_by_phase"] = SendsByPhase(measured);
  line["decisions"] = measured.decisions;
  line["spent_us"] = measured.spent_us;
  line["send_steps"] = nlohmann::ordered_json::array();
  for (const SendStep& step : measured.last_sends) line["send_steps"].push_back(ToJson(step));
  line["setting"] = nullptr;
  if (setting != nullptr) line["setting"] = setting->name;
  if (options.check) {
    line["wrong"] = measured.wrong;
  } else {
    line["wrong"] = nullptr;
  }
  return line.dump() + "\n";
}

}  // namespace spccl::bench
