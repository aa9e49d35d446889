#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  return ErrnoStatus(error, absl::StrCat(what, " ", path));
}

std::string SizeText(size_t bytes) {
  constexpr size_t kKiB = 1024, kMiB = kKiB * kKiB;
  return bytes % kMiB == 0 ? absl::StrCat(bytes / kMiB, " MiB")
                           : absl::StrCat(bytes / kKiB, " KiB");
}

}  // namespace

absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& path, Links links) {
  // Non-blocking, so that a FIFO in the file's place is refused below and not waited for.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  UniqueFd file(::open(path.c_str(), links == Links::kRefuse ? flags | O_NOFOLLOW : flags));
  if (!file.valid() && errno == ELOOP && links == Links::kRefuse) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a symbolic link, expected a regular file"));
  }
  if (!file.valid()) return Failed("open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return Failed("stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  return file;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes,
                                            Links links) {
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, links));
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return Failed("stat", path);
  std::string content;
  content.reserve(std::min(static_cast<size_t>(info.st_size), most_bytes));
  char block[4096];
  for (;;) {
    const ssize_t got = ::read(file.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) return content;
    content.append(block, static_cast<size_t>(got));
    if (content.size() > most_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": longer than ", SizeText(most_bytes)));
    }
  }
}

}  // namespace spccl
