// A daemon's control service: what it has sent as frames for this process's communicator, and how
// that shall run.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/measure.h"

namespace spccl::bench {

// The memory of GPUs that a daemon works on for this process's communicator.
struct GpuBuffers {
  std::set<std::string> kinds;  // "cuda-ipc", "cuda-fd"
  // "staged through the host: " and why; empty: all ranks of that node have handed theirs over.
  std::string not_handed_over;
};

class ControlClient {
 public:
  // Of the one communicator that this process is a member of, here or on another node.
  // `runtime_dir` holds the daemon's sockets. Does not connect yet.
  explicit ControlClient(const std::string& runtime_dir);
  ControlClient(ControlClient&& other) noexcept;
  ~ControlClient();

  absl::StatusOr<Traffic> Read();
  // Of ranks whose buffers are all on GPUs, after an operation.
  absl::StatusOr<GpuBuffers> ReadGpuBuffers();
  // In force from its next operation on.
  absl::Status Apply(const Setting& setting);

 private:
  struct Stub;  // keeps gRPC's headers out of this one
  std::unique_ptr<Stub> stub_;
};

}  // namespace spccl::bench
