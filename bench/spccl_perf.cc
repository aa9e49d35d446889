// spccl-perf: how fast spccl's collectives are between processes of one node or of several, which
// may be hosts of tools/netlab.sh, or all be this machine.
//
// Exit codes: 0 fine, 1 wrong use, 2 the run failed, 3 wrong results.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/perf/gpu.h"
#include "bench/perf/run.h"
#include "bench/perf/spccl_backend.h"
#include "bench/support/private_daemon.h"
#include "bench/support/rank_team.h"

namespace spccl::bench {
namespace {

constexpr char kName[] = "spccl-perf";

// Before a daemon is started, says what is missing where there is no GPU as --device wishes. In a
// process of its own: one that has initialised CUDA cannot fork others that use it.
absl::Status FindGpus(const Options& options) {
  SPCCL_ASSIGN_OR_RETURN(const DeviceWish device, DeviceWish::Parse(options.device));
  if (!device.cuda) return absl::OkStatus();
  return RunTeam(1, [&](RankTeam&) { return Gpu::Open(device, 0, options.cuda_library).status(); });
}

std::vector<std::string> DaemonArguments(const Options& options) {
  std::vector<std::string> arguments = options.daemon_arguments;
  const bool is_said = std::ranges::any_of(
      arguments, [](const std::string& one) { return one.starts_with("--gpu-driver"); });
  if (options.device != "host" && !options.cuda_library.empty() && !is_said) {
    arguments.insert(arguments.begin(), "--gpu-driver=" + options.cuda_library);
  }
  return arguments;
}

absl::StatusOr<bool> RunOnDaemons(const Options& options) {
  // What the ranks, which are forked later, wish of their communicator. Auto wishes nothing: the
  // daemon's settings decide, or whatever the environment says already.
  if (options.algo != "auto") setenv("SPCCL_ALGO", options.algo.c_str(), 1);
  if (!options.cuda_library.empty()) {
    setenv("SPCCL_CUDA_LIBRARY", options.cuda_library.c_str(), 1);
  }
  if (options.codec != "auto") setenv("SPCCL_CODEC", options.codec.c_str(), 1);
  SPCCL_RETURN_IF_ERROR(FindGpus(options));
  SPCCL_ASSIGN_OR_RETURN(const Daemons daemons, GetDaemons({.runtime_dir = options.runtime_dir,
                                                            .nodes = options.nodes,
                                                            .binary = options.daemon_binary,
                                                            .arguments = DaemonArguments(options),
                                                            .launcher = options.launcher}));
  SPCCL_ASSIGN_OR_RETURN(const SharedArena arena, SharedArena::Create(sizeof(std::atomic<bool>)));
  auto* const all_right = new (arena.data()) std::atomic<bool>(true);
  SPCCL_RETURN_IF_ERROR(RunTeam(static_cast<int>(options.ranks), [&](RankTeam& team) {
    daemons.Use(daemons.NodeOf(team.rank(), team.ranks()));
    SPCCL_ASSIGN_OR_RETURN(const auto backend, SpcclBackend::Create(team, options, daemons));
    SPCCL_ASSIGN_OR_RETURN(const bool right, RunProblems(kName, team, *backend, options));
    // relaxed: read after the rank has ended and been waited for.
    if (!right) all_right->store(false, std::memory_order_relaxed);
    return absl::OkStatus();
  }));
  return all_right->load(std::memory_order_relaxed);
}

int Run(const Options& options) {
  HoldSignals();
  const absl::StatusOr<bool> right = RunOnDaemons(options);
  if (right.ok()) return *right ? 0 : 3;
  std::fprintf(stderr, "%s: %s\n", kName, std::string(right.status().message()).c_str());
  return 2;
}

}  // namespace
}  // namespace spccl::bench

int main(int argc, char** argv) {
  const spccl::bench::Tool tool = {
      .name = spccl::bench::kName,
      .summary = "Measures spccl's collectives between processes of one node or of several.",
      .algorithms = {"auto", "local", "ring", "two-level-ring", "recursive-doubling",
                     "halving-doubling", "split", "direct", "tree"},
      .codecs = {"auto", "dense", "pici", "pici-column", "coo", "gap"},
      .buffers = {"alloc", "malloc", "register"},
      .uses_daemon = true};
  return spccl::bench::RunTool(tool, argc, argv, spccl::bench::Run);
}
