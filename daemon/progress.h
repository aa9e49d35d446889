// The one signal of progress. The gRPC health service, the service manager's watchdog and `spcclctl
// status` all follow it, so that they cannot say different things.
//
// Progress means that work that is due moves: a daemon that has nothing to do is healthy, one whose
// threads are alive but stuck is not.
#pragma once

#include <cstdint>
#include <string>

namespace spccl::daemon {

// How long each part of the daemon has not moved, in nanoseconds. 0 where nothing is due.
struct ProgressAges {
  int64_t core_ns = 0;   // since the core thread's last turn (it turns also when idle)
  int64_t slice_ns = 0;  // the oldest slice that a channel thread is in the middle of
  int64_t due_ns = 0;    // since a channel thread last took a slice, where there are some to take
};

struct Progress {
  int64_t age_ns = 0;  // the largest of the ages
  bool healthy = false;
  std::string detail;  // why it is not healthy
};

// Pure. Healthy while every age is below `limit_ns`.
Progress JudgeProgress(const ProgressAges& ages, int64_t limit_ns);

}  // namespace spccl::daemon
