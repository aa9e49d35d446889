// A tuning as it travels between daemons.
#pragma once

#include "absl/status/statusor.h"
#include "collective/policy/tuning.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon {

v1::Tuning ToMessage(const policy::Tuning& tuning);

// InvalidArgument names the field that no tuning has.
absl::StatusOr<policy::Tuning> FromMessage(const v1::Tuning& message);

}  // namespace spccl::daemon
