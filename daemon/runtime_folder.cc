#include "daemon/runtime_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace spccl::daemon {
namespace {

constexpr mode_t kMode = 0755;

// Whatever the umask: others' sessions come through it. Of nothing that somebody has put in the
// place of the folder meanwhile and that is none.
absl::Status OpenToAll(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.valid() && ::fchmod(folder.get(), kMode) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("chmod ", path));
}

}  // namespace

absl::Status MakeRuntimeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), kMode) == 0) {
    SPCCL_RETURN_IF_ERROR(OpenToAll(path));
  } else if (errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  const bool is_ours = info.st_uid == 0 || info.st_uid == ::geteuid();
  const mode_t others = info.st_mode & (S_IWGRP | S_IWOTH);
  if (is_ours && others == 0) return absl::OkStatus();
  std::string advice;
  if (!is_ours) advice = absl::StrCat("chown it to uid ", ::geteuid());
  if (others != 0) {
    const char* const whose = others == S_IWGRP ? "g" : others == S_IWOTH ? "o" : "go";
    absl::StrAppend(&advice, advice.empty() ? "" : ", and ", "chmod ", whose, "-w ", path);
  }
  Log(LogLevel::kWarning, "main",
      "others may write in the runtime folder, and so pass for the daemon",
      {{"folder", path},
       {"owner", absl::StrCat("uid ", info.st_uid)},
       {"mode", absl::StrFormat("%04o", info.st_mode & 07777)},
       {"advice", advice}});
  return absl::OkStatus();
}

}  // namespace spccl::daemon
