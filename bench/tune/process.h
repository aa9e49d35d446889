// One program, run to its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace spccl::tune {

struct ProcessEnd {
  absl::Status status;  // not OK unless it ended with 0: its last line on standard error
  std::string output;
};
// In a process group of its own, so that a terminal's Ctrl-C is this program's to pass on: the
// command gets SIGTERM when `interrupt` is set or the limit is over, and SIGKILL ten seconds later.
// SIGCHLD must not be ignored, or no end is known to be good.
ProcessEnd RunProcess(const std::vector<std::string>& command, int64_t limit_ns,
                      const std::atomic<bool>& interrupt);

}  // namespace spccl::tune
