// Runs one problem again and again on a team of ranks, and says how long it took.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/options.h"
#include "bench/support/team.h"
#include "kernels/format.h"

namespace spccl::bench {

// A send of a library's last operation, as it decided it and forecast it: of one node, all slices
// together.
struct SendStep {
  uint32_t step = 0;
  std::string phase, link;
  std::map<std::string, uint64_t> formats, runners_up;
  // Forecast, of what was chosen and of the runner-up; then parts of the former, beside what it
  // was: docs/operations.md.
  uint64_t chosen_ns = 0, runner_up_ns = 0;
  uint64_t predicted_encode_ns = 0, encode_ns = 0;
  uint64_t predicted_wire_ns = 0, wire_ns = 0;
};

// What a library sent as frames, summed over the ranks, since some start.
struct Traffic {
  uint64_t wire_bytes = 0;
  uint64_t dense_bytes = 0;  // of the same sends, had they been dense
  std::array<uint64_t, kFormatCount> sends_by_format{};
  std::map<std::string, uint64_t> decisions;  // of sends, by "PHASE/REASON"
  std::map<std::string, uint64_t> spent_ns;   // by what: "encode", "send", "reduce", ...
  std::vector<SendStep> last_sends;           // of the last operation, on rank 0's node
  std::string ran;                            // the algorithm of the last operation
};

// How a library came by the ranks' memory of devices.
struct DeviceMemoryUse {
  bool handed_over = false;  // all of it; false: some was copied through the host
  // "handed over (cuda-ipc)", "staged through the host: no GPU is used"; empty: there is none of a
  // device, or it is not known.
  std::string text;
};

// One rank's side of a library under test. All calls come from one thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Allocates the buffers of a problem, replacing those of the last one.
  virtual absl::Status Open(const Problem& problem) = 0;
  virtual void* send() = 0;  // problem.send_bytes()
  virtual void* recv() = 0;  // problem.recv_bytes(); overlaps send() when in place
  // Of a library that works on a device's memory the two are the host's copies of it: ToDevice()
  // brings both over, FromDevice() brings back what recv() shall have.
  virtual absl::Status ToDevice() { return absl::OkStatus(); }
  virtual absl::Status FromDevice() { return absl::OkStatus(); }
  virtual std::string device_name() const { return ""; }  // of a device, once opened
  virtual int device_choices() const { return 1; }        // such devices that ranks take in turn
  // Whether Run() leaves something else in send() than what it found there.
  virtual bool overwrites_input() const = 0;

  // The operation that is measured, once, until its result is in recv().
  virtual absl::Status Run() = 0;

  // What the next operations run with. Called on rank 0 only, while no operation runs.
  virtual absl::Status Apply(const Setting& /*setting*/) {
    return absl::UnimplementedError("this library has no settings");
  }

  // Sums up to now. Called on rank 0 only, while no operation runs.
  virtual absl::StatusOr<Traffic> ReadTraffic() { return Traffic{}; }

  // Of all ranks' buffers up to now. Called on rank 0 only, while no operation runs.
  virtual absl::StatusOr<DeviceMemoryUse> ReadMemoryUse() { return DeviceMemoryUse{}; }
};

struct Measurement {
  std::vector<double> times_us;  // of each measured operation: the slowest rank's
  uint64_t wrong = 0;            // elements, of all ranks
  // Per operation; the same on rank 0 only.
  double wire_bytes = 0;
  double dense_bytes = 0;
  std::array<double, kFormatCount> sends_by_format{};
  std::map<std::string, double> decisions;
  std::map<std::string, double> spent_us;
  std::vector<SendStep> last_sends;
  std::string ran;          // the algorithm of the last operation; empty: not known
  std::string device_name;  // rank 0's; empty: the host
  DeviceMemoryUse memory;   // on rank 0 only
};

// One measurement for each of options.settings, or one where there are none. Collective over the
// team. The barrier before each operation is not part of its time, nor is bringing back an input
// that the operation before has overwritten.
//
// Settings take turns: each is in force for a few operations, of which the first is not measured,
// until each has had its number of them. So what changes in the meantime changes all alike.
absl::StatusOr<std::vector<Measurement>> Measure(Team& team, Backend& backend,
                                                 const Problem& problem, const Options& options);

}  // namespace spccl::bench
