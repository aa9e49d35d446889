// Joining communicators.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/comm.h"
#include "client/include/spccl/spccl.h"
#include "client/process.h"

namespace spccl::client {

// One rank that is to join.
struct JoinRequest {
  spcclComm_t* out;  // where the handle goes
  int ranks;
  spcclUniqueId id;
  int rank;
};

// InvalidArgument unless `ranks` is 1 to shm::kMostRanks.
absl::Status CheckRanks(int ranks);
// Checks what needs no daemon.
absl::Status CheckJoin(const JoinRequest& request);

// Joins them all at the same time and writes their handles; on error none is written and none is
// left. Blocks until all ranks have come, here and elsewhere, or the time for it has passed.
absl::Status Join(Process& process, const std::vector<JoinRequest>& requests);

}  // namespace spccl::client
