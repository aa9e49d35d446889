// What of the configuration may change while the daemon runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config.h"

namespace spccl::daemon {

// Whether the field of this name ("log.level") takes effect without a restart.
bool IsLive(const std::string& field);

// The fields that differ between the two and take a restart. Empty: `next` may be put in force as a
// whole, otherwise nothing of it may.
std::vector<std::string> FieldsThatNeedRestart(const Config& now, const Config& next);

// FailedPrecondition: why `next` may not be put in force in place of `now`, as a whole: fields that
// take a restart; or the default file was there and is not any more, which as a rule is somebody's
// writing it anew.
absl::Status CheckReload(const CommandLine& now, const CommandLine& next);

}  // namespace spccl::daemon
