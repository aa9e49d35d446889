// What this machine needs for the parts of an operation between nodes, measured when the daemon
// starts: the constants of the cost model that are no link's.
#pragma once

#include <cstdint>

#include "collective/policy/tuning.h"

namespace spccl::daemon {

// Takes about 50 ms of one thread: each kernel over the slices of a few MiB, from memory to memory
// as in operations, the better of two. The link's constants (alpha, link_rate) are the defaults:
// they are measured where there are links (daemon/engine_meeting.cc).
policy::Costs MeasureCosts();

// The same for all daemons that share this machine's cores, in whatever containers, and another on
// any other machine and after the next boot. 0: the kernel does not tell.
uint64_t MachineId();

}  // namespace spccl::daemon
