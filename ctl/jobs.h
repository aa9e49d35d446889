// What the daemon knows of jobs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ctl/client.h"

namespace spccl::ctl {

// Whether the job is there, of those that the caller may see. What is set for one that is not is
// kept for when it comes.
absl::StatusOr<bool> HasJob(Client& client, const std::string& id);

}  // namespace spccl::ctl
