// A daemon's control service: what it has sent as frames for this process's communicator, and how
// that shall run.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/measure.h"

namespace spccl::bench {

class ControlClient {
 public:
  // Of the one communicator that this process is a member of, here or on another node.
  // `runtime_dir` holds the daemon's sockets. Does not connect yet.
  explicit ControlClient(const std::string& runtime_dir);
  ControlClient(ControlClient&& other) noexcept;
  ~ControlClient();

  absl::StatusOr<Traffic> Read();
  // In force from its next operation on.
  absl::Status Apply(const Setting& setting);

 private:
  struct Stub;  // keeps gRPC's headers out of this one
  std::unique_ptr<Stub> stub_;
};

}  // namespace spccl::bench
