// Files that somebody names, read whole.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spccl {

// The content of a regular file of at most `most_bytes`, which are whole KiB. Never waits for what
// may never come: InvalidArgument, with the path, for a folder, a pipe or a device, and for a file
// that is longer.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace spccl
