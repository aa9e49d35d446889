// The command line that spccl-perf, mpi-perf and gloo-perf have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/problem.h"

namespace spccl::bench {

// What operations of a run may take turns with.
struct Setting {
  std::string name;  // as it was given: "codec=gap,threshold=0.5"
  // Empty: this setting leaves alone how sends travel.
  std::string codec{};
  double threshold = -1;  // all of them; -1: auto
  // Empty: it leaves alone which plan runs, and in which slices.
  std::string algo{};
  uint64_t slice_bytes = 0;  // 0: auto
};

struct Options {
  Collective op = Collective::kAllReduce;
  DType dtype = DType::kFloat32;
  RedOp redop = RedOp::kSum;
  uint32_t ranks = 2;
  uint32_t nodes = 1;
  double sparsity = 0;
  bool clustered = false;  // the nonzeros, else uniform
  std::vector<Setting> settings;
  uint64_t seed = 1;
  std::string algo = "auto";
  std::string codec = "auto";
  std::string buffers = "alloc";
  std::string netns;      // where a peer's ranks are; {} stands for the node, from 1 on
  std::string interface;  // that a peer shall use there
  bool in_place = false;
  int iters = 20;
  int warmup = 5;
  double warmup_seconds =
      0;  // about, of each setting, where that is fewer operations; 0: no matter
  bool check = false;
  bool json = false;
  std::string runtime_dir;    // of a running daemon; empty: a private one
  std::string daemon_binary;  // of the private one; empty: beside this program
  std::vector<std::string> daemon_arguments;
  std::string launcher;           // of the private ones; see DaemonWish
  std::string device = "host";    // of the buffers; see DeviceWish
  bool handed_over = false;       // an error where GPUs' memory is copied through the host
  bool captured = false;          // in a CUDA graph, which is replayed
  std::string cuda_library;       // the CUDA driver; empty: the system's
  std::vector<Problem> problems;  // one a size
};

// What differs between the tools.
struct Tool {
  std::string name;
  std::string summary;
  std::vector<std::string> algorithms;  // what --algo takes; the first is the default
  std::vector<std::string> codecs;
  std::vector<std::string> buffers;
  bool uses_daemon = false;
  bool places_ranks = false;  // starts its ranks on the hosts that --nodes and --netns name
};

// What the caller shall do with its command line: go on with `options`, or print `text` and leave
// with `exit_code` (0 after --help, 1 after a mistake).
struct ParsedOptions {
  bool go_on = false;
  Options options;
  int exit_code = 0;
  std::string text;
};
ParsedOptions ParseOptions(const Tool& tool, int argc, const char* const* argv);

}  // namespace spccl::bench
