#include "ctl/jobs.h"

#include <algorithm>

#include "base/status.h"

namespace spccl::ctl {

absl::StatusOr<bool> HasJob(Client& client, const std::string& id) {
  SPCCL_ASSIGN_OR_RETURN(const v1::ListJobsResponse response,
                         client.Call(&v1::Control::Stub::ListJobs, v1::ListJobsRequest()));
  return std::any_of(response.jobs().begin(), response.jobs().end(),
                     [&id](const v1::Job& job) { return job.id() == id; });
}

}  // namespace spccl::ctl
