// Small files, read whole and written whole or not at all.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace spccl::daemon {

// The content of a regular file of at most 8 MiB.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Replaces the file: a new one beside it ("PATH.new") is written, synced and renamed over it, then
// the folder is synced. Whatever happens in between, a reader finds the old content or the new. On
// an error the old content stays, unless the folder's sync alone failed: then the new is there, and
// either may survive a loss of power. One writer at a time.
// ResourceExhausted: a full disk, say. FailedPrecondition: whatever else, also where this process
// may not write there, or there is no such folder: that is not its caller's right or mistake.
// `mode`: the file's, less the umask. `replaced`: set where the new content is there, error or not.
absl::Status ReplaceFile(const std::string& path, std::string_view content, mode_t mode = 0644,
                         bool* replaced = nullptr);

// Takes the folder for this process, until the descriptor is closed or the process ends, by a lock
// on its file "lock". FailedPrecondition: another has it; the message names its process id.
absl::StatusOr<UniqueFd> LockFolder(const std::string& folder);

}  // namespace spccl::daemon
