// What descriptors, programs and HTTP servers give, within bounds of bytes and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace spccl::ctl {

struct Bounds {
  size_t bytes = size_t{4} << 20;  // what is beyond is left out
  int64_t nanos = 5'000'000'000;
};

// Until the end of what the descriptor gives. DeadlineExceeded: it did not end in time.
absl::StatusOr<std::string> ReadToEnd(int fd, const Bounds& bounds);

struct Ended {
  std::string output;  // both streams
  int exit_code = -1;  // -1: it did not end by itself
};
// Runs a program, which is looked for in PATH and has no input; it is killed when the bounds are
// passed. NotFound: there is none.
absl::StatusOr<Ended> RunProgram(const std::vector<std::string>& arguments, const Bounds& bounds);
// What such a program has put out, however it ended.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments,
                                     const Bounds& bounds);

// The daemon's metrics, from where its configuration has them (`metrics_listen`).
// FailedPrecondition: nowhere, or at a port that only its log names.
absl::StatusOr<std::string> FetchMetrics(const std::string& listen, const std::string& runtime_dir,
                                         const Bounds& bounds);

}  // namespace spccl::ctl
