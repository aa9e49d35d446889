// What the core is built with. The configuration (daemon/config.h) converts into it, in main.cc.
#pragma once

#include <cstdint>
#include <string>

#include "collective/policy/tuning.h"
#include "daemon/gpu_facts.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

// What clients may hold. Over a limit: a refusal that names it.
struct Limits {
  uint64_t sessions = 1024;
  uint64_t communicators = 1024;
  uint64_t ranks_per_communicator = shm::kMostRanks;
  uint64_t buffers_per_session = 4096;
  uint64_t buffer_bytes_per_session = uint64_t{1} << 40;
};

// The flight recorder: see docs/operations.md, "When it hangs or is slow".
struct FlightOptions {
  uint32_t operations = 64;  // of each communicator; 0: none
  uint32_t spans = 4096;     // of each thread that works; 0: none
  std::string folder;        // where records of failed communicators are kept; empty: nowhere
  uint32_t files = 32;       // the most of them
  uint64_t bytes = uint64_t{64} << 20;
};

struct CoreOptions {
  std::string runtime_dir;  // holds session.sock; must exist
  uint32_t channels = 0;    // channel threads; 0: one a hardware thread, at most 64
  bool pin = false;         // each channel thread to one core
  // From the first rank's arrival at an operation to the last's, and from there to its end.
  int64_t op_timeout_ns = 1'800'000'000'000;
  int64_t init_timeout_ns = 60'000'000'000;   // for all ranks of a communicator to join
  int64_t hello_timeout_ns = 10'000'000'000;  // for a new connection's first request
  int64_t stop_timeout_ns = 10'000'000'000;   // for running operations to end when stopping
  int64_t stall_limit_ns = 10'000'000'000;    // work that is due may rest: see daemon/progress.h
  policy::Costs costs;                // of this machine, for communicators over several nodes
  uint64_t machine = 0;               // see MachineId in daemon/measure_costs.h; 0: not known
  uint64_t inline_bytes = 64 * 1024;  // all ranks' inputs together: below, the core thread runs it
  Limits limits;
  FlightOptions flight;
  GpuFacts gpus;  // as they were found, for people
};

// The socket that clients connect to.
inline std::string SessionSocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/session.sock";
}

}  // namespace spccl::daemon
