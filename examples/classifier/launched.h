// One rank of a training whose ranks somebody else has started, on one node or several: Slurm's
// srun.
#pragma once

#include "absl/status/statusor.h"
#include "examples/classifier/comparison.h"

namespace classifier {

// Trains once, as the daemon chooses, as rank SLURM_PROCID of SLURM_NTASKS. The ranks meet in the
// file settings.meeting, which rank 0 makes. Rank 0 prints one JSON object. Whether all ranks end
// with the same weights.
absl::StatusOr<bool> TrainLaunched(const Data& data, const Settings& settings);

}  // namespace classifier
