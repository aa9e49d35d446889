// What this machine needs for the parts of an operation between nodes, measured when the daemon
// starts: the constants of the cost model that are no link's.
#pragma once

#include "collective/policy/tuning.h"

namespace spccl::daemon {

// Takes about 10 ms of one thread: each kernel on a slice that lies in the cache, as in operations,
// the best of a few repeats. The link's constants (alpha, link_rate) are the defaults.
policy::Costs MeasureCosts();

}  // namespace spccl::daemon
