// Every metric of the daemon. docs/operations.md, "Metrics", has the same table; a test compares.
//
// Labels take few values: none names a buffer, a process or a communicator. What is said of a job
// is joined over spccl_job_info.
#pragma once

#include <span>
#include <string_view>

#include "daemon/metrics/exposition.h"

namespace spccl::daemon::metrics {

// In the order in which they are exposed.
std::span<const Family> Families();
// The one with this name, which must exist.
const Family& FamilyOf(std::string_view name);

}  // namespace spccl::daemon::metrics
