// Files that somebody names, read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace spccl {

// Whether a symbolic link as the path's last part is followed. Refused: in folders that others
// write to, where a link could name any file that only the reader may read.
enum class Links : uint8_t { kFollow, kRefuse };

// A regular file, to read from. Never waits for what may never come: InvalidArgument, with the
// path, for a folder, a pipe or a device, and for a link where those are refused.
absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path, Links links = Links::kFollow);

// The content of such a file, of at most `most_bytes`, which are whole KiB. InvalidArgument, with
// the path, for one that is longer.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes,
                                            Links links = Links::kFollow);

}  // namespace spccl
