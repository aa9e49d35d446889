#include "collective/runtime/process_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace spccl::runtime {
namespace {

// To read the text takes up to a microsecond a mapping, of which a program may have thousands, and
// an operation asks for each slice. Whoever changes a buffer's mapping meanwhile errs anyway.
constexpr int64_t kKnownForNs = 100'000'000;

// Which file it is. A file system that does not answer is not asked.
absl::Status Identify(int folder, const char* path, int flags, struct statx* info) {
  if (::statx(folder, path, flags | AT_STATX_DONT_SYNC, STATX_INO, info) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("statx ", path));
}

absl::Status CheckIs(int fd, const std::string& path, int mode) {
  struct statx given, wanted;
  SPCCL_RETURN_IF_ERROR(Identify(fd, "", AT_EMPTY_PATH, &given));
  SPCCL_RETURN_IF_ERROR(Identify(AT_FDCWD, path.c_str(), 0, &wanted));
  const auto id = [](const struct statx& of) {
    return std::tuple(of.stx_dev_major, of.stx_dev_minor, of.stx_ino);
  };
  if (id(given) != id(wanted)) {
    return absl::InvalidArgumentError(absl::StrCat("a descriptor is not of ", path));
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if ((flags & O_ACCMODE) == mode && (flags & O_PATH) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the descriptor of ", path, " is not opened ",
                                                 mode == O_RDWR ? "to read and write" : "to read"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ProcessMemory>> ProcessMemory::Take(pid_t pid,
                                                                         std::span<UniqueFd> fds) {
  if (fds.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(fds.size(), " descriptors, expected two: /proc/self/mem and /proc/self/maps"));
  }
  SPCCL_RETURN_IF_ERROR(CheckIs(fds[0].get(), absl::StrCat("/proc/", pid, "/mem"), O_RDWR));
  SPCCL_RETURN_IF_ERROR(CheckIs(fds[1].get(), absl::StrCat("/proc/", pid, "/maps"), O_RDONLY));
  return std::shared_ptr<const ProcessMemory>(
      new ProcessMemory(pid, std::move(fds[0]), std::move(fds[1])));
}

Allowance ProcessMemory::Allowed(Access access, uint64_t address, size_t bytes) const {
  const Allowance answer = AskMaps(maps_.get(), access, address, bytes);
  if (answer.error != ENOTTY) return answer;
  const std::lock_guard lock(reading_maps_);
  Known& known = known_[access == Access::kRead ? 0 : 1];
  const int64_t now_ns = MonotonicNanos();
  const bool inside = known.range.start <= address && address <= known.range.end &&
                      bytes <= known.range.end - address;
  if (inside && now_ns - known.since_ns < kKnownForNs) return {bytes, 0};
  known = {.since_ns = now_ns};
  return ReadMaps(maps_.get(), access, address, bytes, &known.range);
}

// A transfer may stop early (at a page that is not there, or for the kernel's own reasons): go on
// from where it stopped; the next one then gives the reason, and the address that it stopped at.
absl::Status ProcessMemory::Move(Access access, uint64_t address, void* local, size_t bytes) const {
  auto [allowed, error] = Allowed(access, address, bytes);
  size_t moved = 0;
  while (moved < allowed) {
    void* const here = static_cast<std::byte*>(local) + moved;
    const auto there = static_cast<off_t>(address + moved);
    const ssize_t n = access == Access::kRead
                          ? ::pread(memory_.get(), here, allowed - moved, there)
                          : ::pwrite(memory_.get(), here, allowed - moved, there);
    if (n > 0) {
      moved += static_cast<size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    // No bytes: there is no such memory any more. EIO: not at this address, though it is mapped.
    error = n == 0 ? ESRCH : errno;
    break;
  }
  if (moved == bytes) return absl::OkStatus();
  const bool read = access == Access::kRead;
  const std::string what =
      absl::StrCat(read ? "read " : "write ", bytes, " bytes at 0x", absl::Hex(address),
                   " of process ", pid_, ", stopped at 0x", absl::Hex(address + moved));
  if (error == EIO) {
    return absl::InvalidArgumentError(absl::StrCat(
        what,
        ": mapped, but past the end of its file, or in pages that only the process itself is "
        "given (of userfaultfd, or memfd_secret: SPCCL_FORCE_STAGING=1 has it copy them)"));
  }
  if (error != EACCES) return ErrnoStatus(error, what);
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": mapped so that the process may not ", read ? "read" : "write", " it"));
}

absl::Status ProcessMemory::Read(uint64_t address, void* destination, size_t bytes) const {
  return Move(Access::kRead, address, destination, bytes);
}

absl::Status ProcessMemory::Write(uint64_t address, const void* source, size_t bytes) const {
  return Move(Access::kWrite, address, const_cast<void*>(source), bytes);  // only read from
}

}  // namespace spccl::runtime
