// A job of real rank processes on a real spccld, for tests that break one of the two.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/include/spccl/spccl.h"
#include "tests/support/daemon_env.h"
#include "tests/support/multi_process.h"
#include "tests/support/raw_client.h"  // kPatienceMs

namespace spccl::testing {

inline constexpr int64_t kToldWithinNs = 1'000'000'000;  // what the product promises

// A daemon that serves; ends the test program if it does not start.
std::unique_ptr<SpawnedDaemon> StartServing(std::vector<std::string> flags = {});

// Asked for over the raw protocol: the library would start a thread in the test, which forks.
spcclUniqueId NewUniqueId(const SpawnedDaemon& daemon);

// What a rank process has: its communicator, made, and the way to report.
struct RankContext {
  int rank;
  spcclComm_t comm;
  const MultiProcess::Report& report;
  std::atomic<uint32_t>& stop;  // shared by all ranks and the test; 0 until it is raised
};

void RaiseStop(std::atomic<uint32_t>& stop);
// Blocks until somebody has raised it.
void AwaitStop(std::atomic<uint32_t>& stop);

class FaultJob {
 public:
  // Forks `ranks` processes that make one communicator and run `body`; its return value is the exit
  // code. A process that cannot make the communicator exits with 99 and reports why. Each process
  // is a kernel session of its own, so that no two FaultJobs share a job of the daemon's.
  FaultJob(const SpawnedDaemon& daemon, int ranks, std::function<int(RankContext&)> body);
  // The same over several daemons: each rank's, by rank. The unique id comes from the first's.
  FaultJob(const std::vector<const SpawnedDaemon*>& daemon_of_rank,
           std::function<int(RankContext&)> body);

  MultiProcess& processes() { return *processes_; }
  void Stop() { RaiseStop(shared_->stop); }

 private:
  struct Shared {
    std::atomic<uint32_t> stop{0};
  };
  struct Unmap {
    void operator()(Shared* shared) const;
  };
  std::unique_ptr<Shared, Unmap> shared_;
  std::unique_ptr<MultiProcess> processes_;
};

// A sum of float32 over the ranks, on the null stream.
spcclResult_t AllReduce(RankContext& context, const std::vector<float>& send,
                        std::vector<float>* recv);

// Reports "result R at NANOS: TEXT;" with the time of the report and the communicator's last error.
void ReportResult(RankContext& context, spcclResult_t result);

struct Told {
  int result = -1;
  int64_t at_ns = 0;
  std::string text;
};
// The last report of ReportResult().
Told ParseResult(const std::string& output);

// Sums over and over and checks each result, until `stop`. Returns 0, or 1 at the first error.
int KeepSumming(RankContext& context);

// What a process holds: descriptors and mappings of shared memory.
struct Holdings {
  size_t descriptors = 0;
  size_t shared_mappings = 0;
  bool operator==(const Holdings&) const = default;
};
Holdings HoldingsOf(pid_t pid);
std::ostream& operator<<(std::ostream& out, const Holdings& holdings);
// Looks again until the process holds just this, or the time is up; returns what it held last.
Holdings AwaitHoldings(pid_t pid, const Holdings& expected, int64_t timeout_ms = kPatienceMs);

}  // namespace spccl::testing
