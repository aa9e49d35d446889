#include "base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl {
namespace {

// Boost.Interprocess maps anything that can name its handle and its mode.
class MappableFd {
 public:
  explicit MappableFd(int fd) : fd_(fd) {}
  boost::interprocess::mapping_handle_t get_mapping_handle() const {
    return boost::interprocess::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  boost::interprocess::mode_t get_mode() const { return boost::interprocess::read_write; }

 private:
  int fd_;
};

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Address space whose start is a multiple of a huge page, for a mapping to be put over; null when
// there is none, or no need. A file's huge page can only be mapped as one where the address is as
// aligned as the offset.
void* ReserveAligned(size_t size_bytes) {
  if (size_bytes < kHugePageBytes || size_bytes > PTRDIFF_MAX) return nullptr;
  const size_t whole = size_bytes + kHugePageBytes;
  void* const memory =
      ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t start = (begin + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t end = (start + size_bytes + page - 1) & ~(page - 1);
  if (start > begin) ::munmap(memory, start - begin);
  if (begin + whole > end) ::munmap(reinterpret_cast<void*>(end), begin + whole - end);
  return reinterpret_cast<void*>(start);
}

// Blocks SIGXFSZ in this thread, and takes back the one that came of its own doing meanwhile.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    was_pending_ = IsPending();
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlock() {
    constexpr timespec kNow{};
    while (!was_pending_ && IsPending() && ::sigtimedwait(&signal_, nullptr, &kNow) < 0 &&
           errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  static bool IsPending() {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
  }

  sigset_t signal_, before_;
  bool was_pending_;
};

// As ftruncate(2), which also raises SIGXFSZ above RLIMIT_FSIZE (ulimit -f). Returns errno, 0 if
// all is well.
int Extend(int fd, size_t size_bytes) {
  const FileSizeSignalBlock block;
  return ::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, size_t size_bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create " + name);
  if (const int error = Extend(fd.get(), size_bytes); error != 0) {
    return ErrnoStatus(error, absl::StrCat("ftruncate ", name, " to ", size_bytes, " bytes",
                                           error == EFBIG ? " (RLIMIT_FSIZE, ulimit -f)" : ""));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "seal " + name);
  }
  return fd;
}

absl::Status CheckMapped(const void* data, size_t size_bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(data);
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "no memory is mapped in some of the ", size_bytes, " bytes at 0x", absl::Hex(start)));
  if (size_bytes > UINTPTR_MAX - page - start) return wrong;
  // mincore(2) fails for what is not mapped; which pages it says are resident is of no interest.
  constexpr size_t kPagesAtOnce = 65536;
  std::vector<unsigned char> resident(std::min(size_bytes / page + 2, kPagesAtOnce));
  const uintptr_t end = start + size_bytes;
  for (uintptr_t at = start & ~(page - 1); at < end; at += resident.size() * page) {
    const size_t length = std::min<size_t>(resident.size() * page, end - at);
    if (::mincore(reinterpret_cast<void*>(at), length, resident.data()) != 0 && errno == ENOMEM) {
      return wrong;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> CheckSealedMemfd(int fd, size_t least_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return absl::InvalidArgumentError("descriptor is not a memfd: it takes no seals");
  if ((seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("memfd is not sealed against shrinking (F_SEAL_SHRINK)");
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "fstat of a memfd");
  const auto size_bytes = static_cast<size_t>(info.st_size);
  if (size_bytes < least_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("memfd holds ", size_bytes, " bytes, expected at least ", least_bytes));
  }
  return size_bytes;
}

absl::StatusOr<SharedMapping> SharedMapping::Create(int fd, size_t size_bytes) {
  void* const reserved = ReserveAligned(size_bytes);
  try {
    if (reserved != nullptr) {  // put over the reservation, which from then on is the mapping's
      return SharedMapping(boost::interprocess::mapped_region(
          MappableFd(fd), boost::interprocess::read_write, 0, size_bytes, reserved, MAP_FIXED));
    }
    return SharedMapping(boost::interprocess::mapped_region(
        MappableFd(fd), boost::interprocess::read_write, 0, size_bytes));
  } catch (const boost::interprocess::interprocess_exception& error) {
    if (reserved != nullptr) ::munmap(reserved, size_bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping ", size_bytes, " bytes of a memfd: ", error.what()));
  }
}

}  // namespace spccl
