// The folder of the sockets.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace spccl::daemon {

// Makes the folder, for all to enter, if there is none and its parent exists. Warns where others
// than root and the daemon's user may put sockets of their own in the place of ours.
absl::Status MakeRuntimeFolder(const std::string& path);

}  // namespace spccl::daemon
