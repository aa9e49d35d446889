#include "bench/model/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/read_file.h"
#include "bench/model/measured.h"

namespace spccl::bench::model {
namespace {

using policy::Algorithm;

constexpr size_t kMostMeasuredBytes = 16 << 20;
constexpr uint32_t kMostGpus = 1 << 16;

// What the command line says, as text: numbers of the system are those that were given.
struct Given {
  std::string preset = "perlmutter", measured, dtype = "float32", codec = "pici";
  std::string thresholds = "auto", sizes = "256M,1G";
  std::vector<std::string> ops = {"all_gather", "reduce_scatter", "all_reduce"};
  std::vector<std::string> algorithms = {"ring", "best"};
  std::vector<uint32_t> gpus;
  std::vector<double> sparsities = {0.99};
  bool paper = false, sources = false, fit = false;
};

// A number of the system, and the flag that sets it.
struct Knob {
  const char* flag;
  const char* help;
  double unit;
  double least, most;  // in the flag's unit
  double& (*of)(System&);
};

template <Kernel kernel>
double& ShareOf(System& system) {
  return system.kernels.shares[static_cast<size_t>(kernel)];
}

const std::vector<Knob>& Knobs() {
  static const auto* const knobs = new std::vector<Knob>{
      {"intra-rate", "GB/s out of a GPU to its node's others", 1e9, 1e-3, 1e9,
       [](System& s) -> double& { return s.intra_rate; }},
      {"node-rate", "GB/s out of a node", 1e9, 1e-3, 1e9,
       [](System& s) -> double& { return s.node_rate; }},
      {"intra-alpha", "microseconds of a round within a node", 1e-6, 0, 1e6,
       [](System& s) -> double& { return s.intra_alpha; }},
      {"inter-alpha", "microseconds of a round between nodes", 1e-6, 0, 1e6,
       [](System& s) -> double& { return s.inter_alpha; }},
      {"sparse-alpha", "microseconds that a round with frames takes beside", 1e-6, 0, 1e6,
       [](System& s) -> double& { return s.sparse_alpha; }},
      {"memory-rate", "GB/s of a GPU's memory, read and written", 1e9, 1e-3, 1e9,
       [](System& s) -> double& { return s.kernels.memory_rate; }},
      {"encode-share", "of the memory's rate that encoding reaches", 1, 1e-6, 1,
       ShareOf<Kernel::kEncode>},
      {"decode-share", "of the memory's rate that decoding reaches", 1, 1e-6, 1,
       ShareOf<Kernel::kDecode>},
      {"combine-share", "of the memory's rate that adding a frame reaches", 1, 1e-6, 1,
       ShareOf<Kernel::kCombine>},
      {"fused-share", "of the memory's rate that adding and encoding at once reaches", 1, 1e-6, 1,
       ShareOf<Kernel::kFused>},
      {"dense-share", "of the memory's rate that dense kernels reach", 1, 1e-6, 1,
       ShareOf<Kernel::kDense>},
      {"overlap", "of the lesser of links' and kernels' time: what the other hides", 1, 0, 1,
       [](System& s) -> double& { return s.overlap; }},
  };
  return *knobs;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

template <typename Enum>
std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(NameOf(static_cast<Enum>(i)));
  return names;
}

std::string NotANumber(const std::string& text) {
  // CLI::Range lets a NaN pass.
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "expected a number" : "";
}

void AddSystem(CLI::App& app, Given& given, Options& options,
               std::vector<std::pair<const Knob*, double>>& turned) {
  app.add_option("--preset", given.preset, "the system to begin with")
      ->check(CLI::IsMember(PresetNames()))
      ->capture_default_str();
  for (const Knob& knob : Knobs()) {
    app.add_option_function<double>(
           absl::StrCat("--", knob.flag),
           [&turned, &knob](double value) { turned.emplace_back(&knob, value); }, knob.help)
        ->check(CLI::Range(knob.least, knob.most))
        ->check(NotANumber);
  }
  app.add_option("--gpus-per-node", options.system.gpus_per_node, "GPUs of a node")
      ->check(CLI::Range(1u, kMostGpus));
  app.add_flag("--fused,!--not-fused", options.system.fused,
               "whether one kernel adds a frame and encodes the sum");
  app.add_option("--measured", given.measured,
                 "file of a GPU benchmark's JSON lines, whose rates take the kernels' place");
}

void AddWork(CLI::App& app, Given& given) {
  app.add_option("--op", given.ops, "collectives, with commas between")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_gather", "reduce_scatter", "all_reduce"}))
      ->capture_default_str();
  app.add_option("--sizes", given.sizes, "dense sizes in bytes, with K, M or G; as spccl-perf's")
      ->capture_default_str();
  app.add_option("--gpus", given.gpus,
                 "numbers of GPUs, with commas between (default: 4 to 2048, by doubling)")
      ->delimiter(',')
      ->check(CLI::Range(2u, kMostGpus));
  app.add_option("--sparsity", given.sparsities, "fractions of zeros, with commas between")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->check(NotANumber)
      ->capture_default_str();
  app.add_option("--dtype", given.dtype, "the elements' type")
      ->check(CLI::IsMember(Names<DType>(kDTypeCount)))
      ->capture_default_str();
  app.add_option("--algo", given.algorithms,
                 "ring, two-level-ring, halving-doubling, recursive-doubling, or best: the fastest "
                 "sparse one beside the fastest dense one; with commas between")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"ring", "two-level-ring", "halving-doubling", "recursive-doubling", "best"}))
      ->capture_default_str();
  app.add_option("--codec", given.codec, "the format of sparse sends")
      ->check(CLI::IsMember(Names<policy::Codec>(policy::kCodecCount)))
      ->capture_default_str();
  app.add_option("--thresholds", given.thresholds,
                 "when sends go dense: auto (where that is faster by the model), or paper")
      ->check(CLI::IsMember({"auto", "paper"}))
      ->capture_default_str();
}

using Turned = std::vector<std::pair<const Knob*, double>>;

// The preset, and in its place what was given. Empty, or what is wrong.
std::string FinishSystem(const CLI::App& app, const Given& given, const Turned& turned,
                         Options& options) {
  const System given_system = options.system;
  options.preset = given.preset;
  options.system = FindPreset(given.preset)->system;
  for (const auto& [knob, value] : turned) {
    knob->of(options.system) = value * knob->unit;
    options.changed.push_back(absl::StrCat(knob->flag, " ", value));
  }
  if (app.count("--gpus-per-node") > 0) {
    options.system.gpus_per_node = given_system.gpus_per_node;
    options.changed.push_back(absl::StrCat("gpus-per-node ", given_system.gpus_per_node));
  }
  if (app.count("--fused") > 0) {
    options.system.fused = given_system.fused;
    options.changed.push_back(given_system.fused ? "fused" : "not fused");
  }
  if (given.measured.empty()) return "";
  const auto text = ReadRegularFile(given.measured, kMostMeasuredBytes);
  if (!text.ok()) return absl::StrCat("--measured: ", text.status().message());
  const auto taken = AddMeasured(*text, options.dtype, &options.system.kernels);
  if (!taken.ok()) return absl::StrCat("--measured: ", taken.status().message());
  if (*taken == 0) return absl::StrCat("--measured: no line of ", given.dtype, " kernels");
  options.changed.push_back(absl::StrCat("measured ", given.measured));
  return "";
}

// What to project, for options.system. Empty, or what is wrong.
std::string FinishWork(const Given& given, Options& options) {
  for (const std::string& name : given.ops) {
    const std::vector<std::string> names = Names<Collective>(kCollectiveCount);
    const auto found = std::find(names.begin(), names.end(), name);
    options.ops.push_back(static_cast<Collective>(found - names.begin()));
  }
  for (const std::string& name : given.algorithms) {
    options.algorithms.push_back(name == "best" ? Algorithm::kAuto
                                                : policy::AlgorithmFromName(name).value());
  }
  auto sizes = ParseSizes(given.sizes);
  if (!sizes.ok()) return absl::StrCat("--sizes: ", sizes.status().message());
  options.sizes = *std::move(sizes);
  options.gpus = given.gpus;
  if (options.gpus.empty()) {
    // To 2,048 by doubling, those that fill nodes.
    for (uint32_t gpus = 4; gpus <= 2048; gpus *= 2) {
      if (gpus % std::min(gpus, options.system.gpus_per_node) == 0) options.gpus.push_back(gpus);
    }
  }
  if (options.gpus.empty()) {
    return absl::StrCat("--gpus: name some; none of 4, 8, ... 2048 fills nodes of ",
                        options.system.gpus_per_node);
  }
  for (const uint32_t gpus : options.gpus) {
    if (gpus % std::min(gpus, options.system.gpus_per_node) == 0) continue;
    return absl::StrCat("--gpus: ", gpus, " GPUs do not fill nodes of ",
                        options.system.gpus_per_node);
  }
  options.sparsities = given.sparsities;
  options.sending.codec = policy::CodecFromName(given.codec).value();
  if (given.thresholds == "paper") {
    const bool coo = options.sending.codec == policy::Codec::kCoo;
    options.sending.thresholds = coo ? policy::kCooThresholds : policy::kPiciThresholds;
  }
  return "";
}

// What is wrong with the file of --config, from the parser, which names neither it nor its syntax.
std::string ConfigComplaint(const CLI::Option& config, std::string_view error) {
  constexpr std::string_view kUnknown = "INI was not able to parse ";
  const std::string file = absl::StrCat("--config ", absl::StrJoin(config.results(), ", "), ": ");
  if (!error.starts_with(kUnknown)) return absl::StrCat(file, std::string(error));
  return absl::StrCat(file, std::string(error.substr(kUnknown.size())),
                      " is none of the flags that a file may have");
}

std::string Finish(const CLI::App& app, const Given& given, const Turned& turned,
                   Options& options) {
  using Print = Options::Print;
  options.print = Print::kTable;
  if (given.paper) options.print = Print::kPaper;
  if (given.sources) options.print = Print::kSources;
  if (given.fit) options.print = Print::kFit;
  options.dtype = DTypeFromName(given.dtype).value();
  const std::string complaint = FinishSystem(app, given, turned, options);
  if (!complaint.empty()) return complaint;
  if (given.sources && !options.changed.empty()) {
    return absl::StrCat("--sources: of a preset as it is, not with ",
                        absl::StrJoin(options.changed, ", "));
  }
  return FinishWork(given, options);
}

}  // namespace

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Given given;
  std::vector<std::pair<const Knob*, double>> turned;
  CLI::App app(
      "Projects dense and sparse collectives to many GPUs from the rates of one and of links",
      "spccl-model");
  const CLI::Option* const config =
      app.set_config("--config", "", "TOML file with any of these flags, such as: node-rate = 100");
  app.allow_config_extras(CLI::config_extras_mode::error);
  AddSystem(app, given, parsed.options, turned);
  AddWork(app, given);
  app.add_flag("--json", parsed.options.json, "print one object a line");
  CLI::Option* paper =
      app.add_flag("--paper", given.paper, "print what papers report beside the model's");
  CLI::Option* sources =
      app.add_flag("--sources", given.sources, "print where a preset's numbers come from");
  app.add_flag("--fit", given.fit, "print the kernels with which the model meets the SpCCL paper")
      ->excludes(paper)
      ->excludes(sources);
  paper->excludes(sources);
  app.add_option("--margin", parsed.options.margin,
                 "with --paper: what is off by more is a disagreement")
      ->check(CLI::Range(0.0, 10.0))
      ->check(NotANumber)
      ->capture_default_str();
  const auto refuse = [&](const std::string& why) {
    parsed.text = absl::StrCat("spccl-model: ", why, "\nTry spccl-model --help.\n");
    parsed.exit_code = 1;
    return parsed;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::ConfigError& error) {
    return refuse(ConfigComplaint(*config, error.what()));
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  const std::string complaint = Finish(app, given, turned, parsed.options);
  if (!complaint.empty()) return refuse(complaint);
  parsed.go_on = true;
  return parsed;
}

}  // namespace spccl::bench::model
