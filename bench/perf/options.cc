#include "bench/perf/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/perf/gpu.h"
#include "bench/perf/pattern.h"
#include "bench/support/check_number.h"

namespace spccl::bench {
namespace {

// The names of an enumeration of `count` values from 0 on.
template <typename Enum>
std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(NameOf(static_cast<Enum>(i)));
  return names;
}

// Adds an option that takes the name of an enumeration's value.
template <typename Enum>
void AddChoice(CLI::App& app, const std::string& flag, Enum& target, int count,
               const std::string& help) {
  const std::vector<std::string> names = Names<Enum>(count);
  app.add_option_function<std::string>(
         flag,
         [&target, names](const std::string& name) {
           const auto found = std::find(names.begin(), names.end(), name);
           target = static_cast<Enum>(found - names.begin());
         },
         help)
      ->check(CLI::IsMember(names));
}

void AddWork(CLI::App& app, Options& options, std::string& sizes) {
  AddChoice(app, "--op", options.op, kCollectiveCount, "the collective (default all_reduce)");
  app.add_option("--ranks", options.ranks, "processes that take part")
      ->check(CLI::Range(1u, kMaxRanks))
      ->capture_default_str();
  app.add_option("--sizes", sizes,
                 "sizes in bytes, with K, M or G, with commas between; of an all-gather the whole "
                 "output, of a reduce-scatter or a scatter the whole input")
      ->capture_default_str();
  AddChoice(app, "--dtype", options.dtype, kDTypeCount, "the elements' type (default float32)");
  AddChoice(app, "--redop", options.redop, kRedOpCount, "the reduction (default sum)");
  app.add_option("--sparsity", options.sparsity, "fraction of zeros in the inputs")
      ->check(CLI::Range(0.0, 1.0))
      ->check([](const std::string& text) {  // which the range's check lets pass
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "expected a number from 0 to 1"
                                                              : std::string();
      })
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--positions",
         [&options](const std::string& name) { options.clustered = name != "uniform"; },
         "of the nonzeros: uniform, or clustered in stretches of 128 elements, half of them "
         "nonzeros "
         "(default uniform)")
      ->check(CLI::IsMember({"uniform", "clustered"}));
  app.add_option("--seed", options.seed, "of the inputs")
      ->check([](const std::string& text) {
        uint64_t seed;
        return std::string(absl::SimpleAtoi(text, &seed) ? ""
                                                         : "expected a number from 0 to 2^64 - 1");
      })
      ->capture_default_str();
  app.add_flag("--in-place", options.in_place, "send and receive in one buffer");
  app.add_option("--iters", options.iters, "measured operations a size")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "operations before them, of each setting")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup-time", options.warmup_seconds,
                 "about as many of them as take so many seconds, but three at least and --warmup "
                 "at most; of --settings that fix codec or threshold three (default: --warmup)")
      ->check(AboveZero());
  app.add_flag("--check", options.check, "compare a result with what it must be");
  app.add_flag("--json", options.json, "print one object a line");
}

// What the peers have in place of a daemon's options.
void AddPlaces(CLI::App& app, const Tool& tool, Options& options) {
  app.add_option("--nodes", options.nodes,
                 tool.places_ranks ? "hosts of the ranks, which are dealt out in blocks"
                                   : "hosts that the ranks were started on, for the report")
      ->check(CLI::Range(1u, kMaxRanks))
      ->capture_default_str();
  if (!tool.places_ranks) return;
  app.add_option("--netns", options.netns,
                 "network namespace of a host, such as spccl-main-{}; {} becomes its number");
  app.add_option("--interface", options.interface, "of the network there (default: loopback)");
}

// "codec=gap,threshold=0.5" or "algo=split"; throws CLI::ValidationError.
Setting ParseSetting(const std::string& text, const Tool& tool) {
  Setting setting{.name = text};
  const auto refuse = [&] {
    throw CLI::ValidationError("--settings", "found \"" + text +
                                                 "\", expected codec=CODEC,threshold=SPARSITY, "
                                                 "where a sparsity may be auto, or "
                                                 "algo=ALGORITHM,slice=BYTES, or some of them");
  };
  const auto one_of = [&](const std::string& value, const std::vector<std::string>& values) {
    if (std::find(values.begin(), values.end(), value) == values.end()) refuse();
    return value;
  };
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.first == "codec") {
      setting.codec = one_of(field.second, tool.codecs);
    } else if (field.first == "algo") {
      setting.algo = one_of(field.second, tool.algorithms);
    } else if (field.first == "slice") {
      if (setting.algo.empty()) setting.algo = "auto";
      if (!absl::SimpleAtoi(field.second, &setting.slice_bytes)) refuse();
    } else if (field.first == "threshold") {
      if (setting.codec.empty()) setting.codec = "auto";
      if (field.second == "auto") continue;
      const bool is_number = absl::SimpleAtod(field.second, &setting.threshold);
      if (!is_number || !(setting.threshold >= 0 && setting.threshold <= 1)) refuse();
    } else {
      refuse();
    }
  }
  return setting;
}

// Where ranks' buffers are, and the driver of such devices.
void AddDevice(CLI::App& app, Options& options) {
  app.add_option("--device", options.device,
                 "of the buffers: host; cuda, where each rank takes the node's next GPU, round and "
                 "round; or cuda:N, one GPU for all")
      ->check([](const std::string& text) {
        const absl::StatusOr<DeviceWish> wish = DeviceWish::Parse(text);
        return wish.ok() ? std::string() : std::string(wish.status().message());
      })
      ->capture_default_str();
  app.add_flag("--handed-over", options.handed_over,
               "of --device cuda: fail where a rank's memory is copied through the host, as the "
               "daemon does not take it");
  app.add_flag("--captured", options.captured,
               "of --device cuda: each rank captures the operation in a CUDA graph, once for each "
               "size, and replays that");
  app.add_option(
         "--cuda-library", options.cuda_library,
         "the CUDA driver, of ranks and private daemons (default: the system's, libcuda.so.1)")
      ->envname("SPCCL_CUDA_LIBRARY");
}

void AddTool(CLI::App& app, const Tool& tool, Options& options, std::string& socket) {
  options.algo = tool.algorithms.front();
  options.codec = tool.codecs.front();
  options.buffers = tool.buffers.front();
  app.add_option("--algo", options.algo, "the algorithm")
      ->check(CLI::IsMember(tool.algorithms))
      ->capture_default_str();
  app.add_option("--codec", options.codec, "the format of sparse sends")
      ->check(CLI::IsMember(tool.codecs))
      ->capture_default_str();
  app.add_option("--buffers", options.buffers, "where the ranks' buffers come from")
      ->check(CLI::IsMember(tool.buffers))
      ->capture_default_str();
  if (!tool.uses_daemon) return AddPlaces(app, tool, options);
  AddDevice(app, options);
  CLI::Option* folder = app.add_option("--runtime-dir", options.runtime_dir,
                                       "folder of the sockets of a running daemon");
  app.add_option("--socket", socket,
                 "a running daemon's socket: its session.sock, or the folder of that")
      ->excludes(folder);
  app.add_option("--spccld", options.daemon_binary,
                 "the daemon to start privately when none is named (default: the one beside this "
                 "program, else of its prefix's sbin, else of the PATH)");
  app.add_option("--daemon-arg", options.daemon_arguments,
                 "an argument for the private daemon, such as --channels=2; may be repeated; {} "
                 "becomes the number of the node");
  app.add_option_function<std::vector<std::string>>(
      "--settings",
      [&options, &tool](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
          options.settings.push_back(ParseSetting(text, tool));
        }
      },
      "settings that take turns, a line each: codec=CODEC,threshold=SPARSITY or auto, "
      "algo=ALGORITHM,slice=BYTES, or both; may be repeated");
  app.add_option(
         "--nodes", options.nodes,
         "private daemons to start, as if each were a node's; ranks are dealt out in blocks")
      ->check(CLI::Range(1u, kMaxRanks))
      ->capture_default_str();
  app.add_option("--launcher", options.launcher,
                 "a command to start each daemon with, such as 'tools/netlab.sh exec {}'");
}

}  // namespace

ParsedOptions ParseOptions(const Tool& tool, int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  std::string sizes = "16M", socket;
  CLI::App app(tool.summary, tool.name);
  AddWork(app, options, sizes);
  AddTool(app, tool, options, socket);
  const auto refuse = [&](const std::string& why) {
    parsed.text = absl::StrCat(tool.name, ": ", why, "\nTry ", tool.name, " --help.\n");
    parsed.exit_code = 1;
    return parsed;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  if (options.nodes > options.ranks) {
    return refuse(absl::StrCat("--nodes ", options.nodes, ": more than the ", options.ranks,
                               " ranks of --ranks"));
  }
  if (options.nodes > 1 && !(options.runtime_dir.empty() && socket.empty())) {
    return refuse("--nodes starts private daemons; it does not go with one that runs already");
  }
  if (options.device != "host" && options.buffers == "malloc") {
    return refuse("--buffers malloc: a device's memory comes from its driver (alloc or register)");
  }
  if (options.handed_over && options.device == "host") {
    return refuse("--handed-over: the host's memory is not a GPU's (--device cuda)");
  }
  if (options.captured && options.device == "host") {
    return refuse("--captured: only streams of a GPU are captured (--device cuda)");
  }
  const absl::StatusOr<std::vector<uint64_t>> bytes = ParseSizes(sizes);
  if (!bytes.ok()) return refuse(absl::StrCat("--sizes: ", bytes.status().message()));
  for (const uint64_t size : *bytes) {
    const absl::StatusOr<Problem> problem =
        MakeProblem(options.op, options.dtype, options.redop, options.ranks, size);
    if (!problem.ok()) return refuse(absl::StrCat("--sizes: ", problem.status().message()));
    options.problems.push_back(*problem);
  }
  if (options.cuda_library.find('/') != std::string::npos) {  // daemons have folders of their own
    options.cuda_library = std::filesystem::absolute(options.cuda_library).string();
  }
  if (!socket.empty()) {
    // Clients find a daemon by the folder of its sockets, whose names are fixed.
    std::filesystem::path path = std::filesystem::absolute(socket).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // "folder/"
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      if (path.filename() != "session.sock") {
        return refuse(absl::StrCat("--socket: found \"", socket,
                                   "\", expected a daemon's session.sock, or its folder"));
      }
      path = path.parent_path();
    }
    options.runtime_dir = path.string();
  }
  parsed.go_on = true;
  return parsed;
}

}  // namespace spccl::bench
