#include "bench/tune/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/view.h"
#include "bench/tune/process.h"
#include "bench/tune/progress_bar.h"
#include "collective/policy/plan_table.h"

namespace spccl::tune {
namespace {

constexpr double kTie = 0.02;

std::vector<std::string> WaysOf(const SweepOptions& options, OpKind op) {
  std::vector<std::string> ways = {"auto"};
  for (const std::string& name : options.algorithms) {
    const auto algorithm = policy::AlgorithmFromName(name);
    if (!algorithm || !policy::HasPlan(*algorithm, op)) continue;
    for (const uint64_t slice : options.slices) {
      ways.push_back(policy::NameOf(policy::Pick{.algorithm = *algorithm, .slice_bytes = slice}));
    }
  }
  return ways;
}

// About as long for each size, and turns of three.
uint32_t Iterations(const SweepOptions& options, uint64_t bytes) {
  if (bytes <= 1 << 20) return options.iters;
  return std::max<uint32_t>(3, bytes <= 16 << 20 ? options.iters * 2 / 3 : options.iters / 3);
}

// "split/262144" as --settings has it.
std::string SettingOf(const std::string& way) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(way, absl::MaxSplits('/', 1));
  return absl::StrCat("algo=", parts.first, parts.second.empty() ? "" : ",slice=", parts.second);
}

// The paper's, but for those that the caller names: where all is auto ways to send would be tried
// meanwhile.
void AddThresholds(const SweepOptions& options, std::vector<std::string>* command) {
  constexpr std::pair<const char*, const char*> kPaper[] = {
      {"--thresholds-pici-intra=", "0.6"}, {"--thresholds-pici-inter=", "0.5"},
      {"--thresholds-pici-ag=", "0.1"},    {"--thresholds-coo-intra=", "0.7"},
      {"--thresholds-coo-inter=", "0.6"},  {"--thresholds-coo-ag=", "0.5"}};
  for (const auto& [flag, value] : kPaper) {
    const bool named = std::any_of(
        options.perf_arguments.begin(), options.perf_arguments.end(),
        [flag = flag](const std::string& argument) { return argument.starts_with(flag); });
    if (!named) command->insert(command->end(), {"--daemon-arg", absl::StrCat(flag, value)});
  }
}

std::vector<std::string> CommandOf(const SweepOptions& options, const Launch& launch) {
  const Case& at = launch.at;
  std::vector<std::string> command = {options.perf,
                                      "--op",
                                      std::string(NameOf(at.op)),
                                      "--nodes",
                                      absl::StrCat(at.nodes),
                                      "--ranks",
                                      absl::StrCat(at.ranks),
                                      "--sizes",
                                      absl::StrCat(at.bytes),
                                      "--sparsity",
                                      absl::StrCat(at.sparsity),
                                      "--iters",
                                      absl::StrCat(Iterations(options, at.bytes)),
                                      "--warmup",
                                      "3",
                                      "--json"};
  AddThresholds(options, &command);
  command.insert(command.end(), options.perf_arguments.begin(), options.perf_arguments.end());
  if (at.channels != 0) {
    command.insert(command.end(), {"--daemon-arg", absl::StrCat("--channels=", at.channels)});
  }
  for (const std::string& way : launch.ways) {
    command.insert(command.end(), {"--settings", SettingOf(way)});
  }
  return command;
}

// A sample of each way, or what is wrong with the output.
absl::StatusOr<std::vector<Sample>> SamplesOf(const SweepOptions& options, const Launch& launch,
                                              const std::string& output) {
  std::vector<Sample> samples;
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  for (size_t i = 0; i < launch.ways.size(); ++i) {
    const nlohmann::json line =
        i < lines.size() ? nlohmann::json::parse(lines[i], nullptr, false) : nlohmann::json();
    if (!line.is_object() || line.value("setting", "") != SettingOf(launch.ways[i]) ||
        !(line.value("time_us_p50", 0.0) > 0)) {
      return absl::InternalError(
          absl::StrCat("line ", i + 1, " is not of ", SettingOf(launch.ways[i])));
    }
    samples.push_back({.at = launch.at,
                       .way = launch.ways[i],
                       .ran = line.value("ran", ""),
                       .iters = Iterations(options, launch.at.bytes),
                       .time_us = line["time_us_p50"]});
  }
  return samples;
}

// How often each way of each case was measured.
using Counts = std::map<std::pair<Case, std::string>, uint32_t>;

bool IsDone(const Launch& launch, uint32_t rounds, const Counts& counts) {
  return std::all_of(launch.ways.begin(), launch.ways.end(), [&](const std::string& way) {
    const auto found = counts.find({launch.at, way});
    return found != counts.end() && found->second >= rounds;
  });
}

// What auto took in each case with this number; nothing if some case was not measured with it.
std::optional<std::vector<double>> MediansOf(const SweepOptions& options, uint32_t channels,
                                             const std::vector<Sample>& samples) {
  std::vector<double> medians;
  for (const Launch& launch : ChannelLaunches(options)) {
    if (launch.at.channels != channels) continue;
    std::vector<double> times;
    for (const Sample& sample : samples) {
      if (sample.at == launch.at && sample.way == "auto") times.push_back(sample.time_us);
    }
    if (times.empty()) return std::nullopt;
    medians.push_back(Median(times));
  }
  return medians;
}

class Sweeper {
 public:
  Sweeper(const SweepOptions& options, const std::atomic<bool>& interrupt)
      : options_(options), interrupt_(interrupt) {}

  absl::StatusOr<SweepEnd> Run() {
    SPCCL_ASSIGN_OR_RETURN(samples_, ReadSamples(options_.csv));
    for (const Sample& sample : samples_) ++counts_[{sample.at, sample.way}];
    SPCCL_ASSIGN_OR_RETURN(record_, ReadRecord(options_.record));
    SPCCL_RETURN_IF_ERROR(CheckArguments());
    if (!record_.channels || record_.channels_of != options_.channels) {
      SPCCL_RETURN_IF_ERROR(RunAll("channels", ChannelLaunches(options_)));
      if (end_.interrupted) return end_;
      SPCCL_RETURN_IF_ERROR(ChooseChannels());
    }
    end_.channels = *record_.channels;
    SPCCL_RETURN_IF_ERROR(RunAll("plans", PlanLaunches(options_, end_.channels)));
    return end_;
  }

 private:
  // Samples of other daemons or links are not to be learned from together.
  absl::Status CheckArguments() {
    if (record_.arguments == options_.perf_arguments) return absl::OkStatus();
    if (record_.arguments && !samples_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          options_.csv, " was measured with \"", absl::StrJoin(*record_.arguments, " "),
          "\", found \"", absl::StrJoin(options_.perf_arguments, " "),
          "\"; expected another folder, or, if both are the same links, no \"arguments\" in ",
          options_.record));
    }
    record_.arguments = options_.perf_arguments;
    return WriteRecord(options_.record, record_);
  }

  absl::Status ChooseChannels() {
    const ChannelChoice choice = BestChannels(options_, samples_);
    if (!choice.left_out.empty()) {
      std::fprintf(stderr, "left out, not measured in every case: %s channels\n",
                   absl::StrJoin(choice.left_out, ", ").c_str());
    }
    if (!choice.best) {
      return absl::FailedPreconditionError(
          "no number of channels was measured in every case, expected at least one; the same "
          "command tries those that failed again");
    }
    record_.channels = choice.best;
    record_.channels_of = options_.channels;
    return WriteRecord(options_.record, record_);
  }

  // Each round over all of them, so that what changes in the meantime changes all alike.
  absl::Status RunAll(const std::string& title, const std::vector<Launch>& launches) {
    ProgressBar bar(title, launches.size() * options_.rounds);
    for (uint32_t round = 1; round <= options_.rounds; ++round) {
      for (const Launch& launch : launches) {
        if (end_.interrupted) return absl::OkStatus();
        if (IsDone(launch, round, counts_)) {
          bar.Skip();
          continue;
        }
        bar.Begin(Describe(launch.at));
        SPCCL_RETURN_IF_ERROR(RunOne(launch, &bar));
        bar.End();
      }
    }
    return absl::OkStatus();
  }

  // The status is of our own files only.
  absl::Status RunOne(const Launch& launch, ProgressBar* bar) {
    const ProcessEnd ended = RunProcess(CommandOf(options_, launch), options_.limit_ns, interrupt_);
    end_.interrupted = interrupt_.load(std::memory_order_relaxed);  // a flag alone
    if (end_.interrupted) return absl::OkStatus();
    ++end_.ran;
    absl::StatusOr<std::vector<Sample>> samples =
        ended.status.ok() ? SamplesOf(options_, launch, ended.output) : ended.status;
    if (!samples.ok()) {
      ++end_.failed;
      bar->Say(absl::StrCat("failed: ", Describe(launch.at), ": ", samples.status().message()));
      return absl::OkStatus();
    }
    SPCCL_RETURN_IF_ERROR(AppendSamples(options_.csv, *samples));
    for (Sample& sample : *samples) {
      ++counts_[{sample.at, sample.way}];
      samples_.push_back(std::move(sample));
    }
    return absl::OkStatus();
  }

  const SweepOptions& options_;
  const std::atomic<bool>& interrupt_;
  std::vector<Sample> samples_;
  Record record_;
  Counts counts_;
  SweepEnd end_;
};

}  // namespace

std::vector<Launch> ChannelLaunches(const SweepOptions& options) {
  std::vector<Launch> launches;
  if (options.channels.size() < 2) return launches;
  const uint32_t nodes = options.nodes.back(), ranks = options.ranks.back();
  for (const double sparsity : {options.sparsities.front(), options.sparsities.back()}) {
    for (const uint32_t channels : options.channels) {
      launches.push_back({.at = {.op = options.ops.front(),
                                 .nodes = nodes,
                                 .ranks = nodes * ranks,
                                 .bytes = options.bytes.back(),
                                 .sparsity = sparsity,
                                 .channels = channels},
                          .ways = {"auto"}});
    }
  }
  return launches;
}

std::vector<Launch> PlanLaunches(const SweepOptions& options, uint32_t channels) {
  std::vector<Launch> launches;
  for (const OpKind op : options.ops) {
    for (const uint32_t nodes : options.nodes) {
      for (const uint32_t ranks : options.ranks) {
        for (const double sparsity : options.sparsities) {
          for (const uint64_t bytes : options.bytes) {
            launches.push_back({.at = {.op = op,
                                       .nodes = nodes,
                                       .ranks = nodes * ranks,
                                       .bytes = bytes,
                                       .sparsity = sparsity,
                                       .channels = channels},
                                .ways = WaysOf(options, op)});
          }
        }
      }
    }
  }
  return launches;
}

ChannelChoice BestChannels(const SweepOptions& options, const std::vector<Sample>& samples) {
  if (options.channels.size() < 2) return {.best = options.channels.front()};
  ChannelChoice choice;
  // Of those with a time of each case: with one less, the sum would be less too.
  std::map<uint32_t, double> log_sum;
  size_t cases = 0;
  for (const uint32_t channels : options.channels) {
    const std::optional<std::vector<double>> medians = MediansOf(options, channels, samples);
    if (!medians) {
      choice.left_out.push_back(channels);
      continue;
    }
    double& sum = log_sum[channels] = 0;
    for (const double median : *medians) sum += std::log(median);
    cases = medians->size();
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [channels, sum] : log_sum) least = std::min(least, sum);
  const double slack = std::log1p(kTie) * static_cast<double>(cases);
  const auto fewest = std::find_if(log_sum.begin(), log_sum.end(),
                                   [&](const auto& one) { return one.second <= least + slack; });
  if (fewest != log_sum.end()) choice.best = fewest->first;
  return choice;
}

uint32_t ChannelsToLearn(const SweepOptions& options, const Record& record,
                         const std::vector<Sample>& samples) {
  if (options.channels.size() == 1) return options.channels.front();
  if (record.channels) return *record.channels;
  std::map<uint32_t, size_t> plans;
  for (const Sample& sample : samples) plans[sample.at.channels] += sample.way == "auto" ? 0 : 1;
  const auto most = std::max_element(
      plans.begin(), plans.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == plans.end() ? 0 : most->first;
}

absl::StatusOr<SweepEnd> Sweep(const SweepOptions& options, const std::atomic<bool>& interrupt) {
  return Sweeper(options, interrupt).Run();
}

}  // namespace spccl::tune
