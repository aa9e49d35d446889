#include "daemon/file_io.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/view.h"

namespace spccl::daemon {
namespace {

constexpr size_t kMaxFileBytes = size_t{8} << 20;

absl::Status Failed(std::string_view what, const std::string& path) {
  const int error = errno;
  return ErrnoStatus(error, absl::StrCat(View(what), " ", path));
}

// Whether its first thread is a zombie, as that of a process is that still closes its files.
bool HasExited(long pid) {
  const absl::StatusOr<std::string> stat =
      ReadFile(absl::StrCat("/proc/", pid, "/stat"));  // "PID (NAME) STATE ..."
  if (!stat.ok()) return false;
  const size_t name_end = stat->rfind(')');
  return name_end != std::string::npos && stat->compare(name_end, 3, ") Z") == 0;
}

absl::Status WriteNew(const std::string& path, std::string_view content, mode_t mode) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.valid()) return Failed("create", path);
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  // Before the rename, or a loss of power could leave the new name with no content.
  if (::fsync(file.get()) != 0) return Failed("sync", path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  return ReadRegularFile(path, kMaxFileBytes);
}

namespace {

absl::Status Replace(const std::string& path, std::string_view content, mode_t mode,
                     bool* replaced) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // First, as after the rename it is too late to fail.
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return Failed("open", folder);
  const std::string beside = path + ".new";
  absl::Status status = WriteNew(beside, content, mode);
  if (status.ok() && ::rename(beside.c_str(), path.c_str()) != 0) status = Failed("rename", beside);
  if (!status.ok()) {
    ::unlink(beside.c_str());  // best effort: the next write truncates what is left
    return status;
  }
  if (replaced != nullptr) *replaced = true;
  if (::fsync(directory.get()) != 0) return Failed("sync", folder);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, std::string_view content, mode_t mode,
                         bool* replaced) {
  const absl::Status status = Replace(path, content, mode, replaced);
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

absl::StatusOr<UniqueFd> LockFolder(const std::string& folder) {
  const std::string path = folder + "/lock";
  constexpr mode_t kMode = 0600;  // whoever may open it may lock it
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!file.valid()) return Failed("open", path);
  (void)::fchmod(file.get(), kMode);  // an older release's
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed("lock", path);
    char owner[16] = {};  // the lock decides; the number in the file is for people
    if (::pread(file.get(), owner, sizeof owner - 1, 0) < 0) owner[0] = '\0';
    const long pid = std::strtol(owner, nullptr, 10);
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is in use by process ", pid,
                     HasExited(pid) ? ", which has ended but for files that it cannot close (of a "
                                      "FUSE, say, whose server does not answer)"
                                    : ""));
  }
  const std::string self = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), self.data(), self.size(), 0) != static_cast<ssize_t>(self.size())) {
    return Failed("write", path);
  }
  return file;
}

}  // namespace spccl::daemon
