#include "daemon/flight_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/file_io.h"
#include "proto/spccl/v1/flight_file.h"

namespace spccl::daemon {
namespace {

constexpr char kHalf[] = ".spcclflight.new";  // of ReplaceFile, before it is renamed

struct Kept {
  std::string name;  // begins with the time, so that names sort by age
  uint64_t bytes = 0;
};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// Oldest first.
absl::StatusOr<std::vector<Kept>> List(const std::string& folder, const char* suffix) {
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (open == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", folder));
  std::vector<Kept> kept;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (!absl::StartsWith(name, flight::kFilePrefix) || !absl::EndsWith(name, suffix)) continue;
    struct stat info;
    if (::fstatat(::dirfd(open.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    kept.push_back({name, static_cast<uint64_t>(info.st_size)});
  }
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.name < b.name; });
  return kept;
}

std::string OwnerPart(const std::string& boot_id, uint64_t comm_id) {
  return absl::StrCat("-", boot_id, "-comm", comm_id, flight::kFileSuffix);
}

// What jobs did is theirs and the administrator's to know; others get it by the daemon's word.
absl::Status TakeFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", folder));
  }
  const UniqueFd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!open.valid() && (errno == ENOTDIR || errno == ELOOP)) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, ": a symbolic link or a file, expected a folder"));
  }
  if (!open.valid()) return ErrnoStatus(errno, absl::StrCat("open ", folder));
  struct stat info;
  if (::fstat(open.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", folder));
  if (info.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(folder, ": a folder of uid ", info.st_uid,
                                                      ", expected one of uid ", ::geteuid()));
  }
  constexpr mode_t kOthers = 0077;
  if ((info.st_mode & kOthers) != 0 && ::fchmod(open.get(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chmod 0700 ", folder));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FlightFiles> FlightFiles::Open(FlightFilesOptions options) {
  SPCCL_RETURN_IF_ERROR(TakeFolder(options.folder));
  FlightFiles files(std::move(options));
  SPCCL_ASSIGN_OR_RETURN(const std::vector<Kept> halves, List(files.options_.folder, kHalf));
  for (const Kept& half : halves) {
    ::unlink(absl::StrCat(files.options_.folder, "/", half.name).c_str());
  }
  SPCCL_RETURN_IF_ERROR(files.MakeRoom(0));
  return files;
}

absl::Status FlightFiles::MakeRoom(uint64_t more_bytes) const {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<Kept> kept, List(options_.folder, flight::kFileSuffix));
  uint64_t bytes = more_bytes;
  size_t files = kept.size() + (more_bytes > 0 ? 1 : 0);
  for (const Kept& one : kept) bytes += one.bytes;
  for (const Kept& one : kept) {
    if (files <= options_.files && bytes <= options_.bytes) break;
    const std::string path = absl::StrCat(options_.folder, "/", one.name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
    bytes -= one.bytes;
    --files;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FlightFiles::Keep(const v1::FlightRecord& record) {
  SPCCL_RETURN_IF_ERROR(flight::CheckSize(record));  // or nobody would read it
  const std::string content = flight::FormatFile(record);
  if (options_.files == 0 || content.size() > options_.bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a flight record of ", content.size(),
                                                     " bytes, and all may be ", options_.bytes,
                                                     " bytes in ", options_.files, " files"));
  }
  // Before it is written, so that there is never more than may be.
  SPCCL_RETURN_IF_ERROR(MakeRoom(content.size()));
  const std::string path = absl::StrCat(options_.folder, "/", flight::kFilePrefix,
                                        absl::StrFormat("%020d", record.unix_ns()),
                                        OwnerPart(record.boot_id(), record.comm_id()));
  SPCCL_RETURN_IF_ERROR(ReplaceFile(path, content, 0600));
  return path;
}

absl::StatusOr<v1::FlightRecord> FlightFiles::Find(const std::string& boot_id,
                                                   uint64_t comm_id) const {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<Kept> kept, List(options_.folder, flight::kFileSuffix));
  const std::string owner = OwnerPart(boot_id, comm_id);
  for (auto one = kept.rbegin(); one != kept.rend(); ++one) {
    if (!absl::EndsWith(one->name, owner)) continue;
    SPCCL_ASSIGN_OR_RETURN(const std::string content,
                           ReadRegularFile(absl::StrCat(options_.folder, "/", one->name),
                                           flight::kMostReadBytes, Links::kRefuse));
    return flight::ParseFile(content);
  }
  return absl::NotFoundError(absl::StrCat("no record of communicator ", comm_id, " is kept"));
}

}  // namespace spccl::daemon
