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

// What a library sent as frames, summed over the ranks, since some start.
struct Traffic {
  uint64_t wire_bytes = 0;
  uint64_t dense_bytes = 0;  // of the same sends, had they been dense
  std::array<uint64_t, kFormatCount> sends_by_format{};
  std::map<std::string, uint64_t> decisions;  // of sends, by "PHASE/REASON"
  std::map<std::string, uint64_t> spent_ns;   // by what: "encode", "send", "reduce", ...
};

// One rank's side of a library under test. All calls come from one thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Allocates the buffers of a problem, replacing those of the last one.
  virtual absl::Status Open(const Problem& problem) = 0;
  virtual void* send() = 0;  // problem.send_bytes()
  virtual void* recv() = 0;  // problem.recv_bytes(); overlaps send() when in place
  // Whether Run() leaves something else in send() than what it found there.
  virtual bool overwrites_input() const = 0;

  // The operation that is measured, once, until its result is in recv().
  virtual absl::Status Run() = 0;

  // Sums up to now. Called on rank 0 only, while no operation runs.
  virtual absl::StatusOr<Traffic> ReadTraffic() { return Traffic{}; }
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
};

// Collective over the team. The barrier before each operation is not part of its time, nor is
// bringing back an input that the operation before has overwritten.
absl::StatusOr<Measurement> Measure(Team& team, Backend& backend, const Problem& problem,
                                    const Options& options);

}  // namespace spccl::bench
