// What a daemon has sent as frames for this process's communicator, from its control service.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/measure.h"

namespace spccl::bench {

class TrafficReader {
 public:
  // `runtime_dir` holds the daemon's sockets. Does not connect yet.
  explicit TrafficReader(const std::string& runtime_dir);
  TrafficReader(TrafficReader&& other) noexcept;
  ~TrafficReader();

  // Of the one communicator that this process is a member of, here or on another node.
  absl::StatusOr<Traffic> Read();

 private:
  struct Stub;  // keeps gRPC's headers out of this one
  std::unique_ptr<Stub> stub_;
};

}  // namespace spccl::bench
