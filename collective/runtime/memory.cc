#include "collective/runtime/memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::runtime {
namespace {

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                             unsigned long);

// A transfer may stop early (at a page that is not there, or for the kernel's own reasons): go on
// from where it stopped; the next call then gives the reason, and the address that it stopped at.
absl::Status TransferAll(Transfer transfer, std::string_view verb, pid_t pid, uint64_t address,
                         void* local, size_t bytes) {
  size_t moved = 0;
  while (moved < bytes) {
    iovec here{static_cast<std::byte*>(local) + moved, bytes - moved};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process, never followed here
    iovec there{reinterpret_cast<void*>(address + moved), bytes - moved};
    const ssize_t n = transfer(pid, &here, 1, &there, 1, 0);
    if (n > 0) {
      moved += static_cast<size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const int error = n < 0 ? errno : EFAULT;
    return ErrnoStatus(error, absl::StrCat(absl::string_view(verb.data(), verb.size()), " ", bytes,
                                           " bytes at 0x", absl::Hex(address), " of process ", pid,
                                           ", stopped at 0x", absl::Hex(address + moved)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MemoryView::Read(uint64_t offset_bytes, void* destination, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (mapped()) {
    std::memcpy(destination, data_ + offset_bytes, bytes);
    return absl::OkStatus();
  }
  return TransferAll(&::process_vm_readv, "read", pid_, address_ + offset_bytes, destination,
                     bytes);
}

absl::Status MemoryView::Write(uint64_t offset_bytes, const void* source, size_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (mapped()) {
    std::memcpy(data_ + offset_bytes, source, bytes);
    return absl::OkStatus();
  }
  // The kernel only reads the local side of a write; iovec has no const.
  return TransferAll(&::process_vm_writev, "write", pid_, address_ + offset_bytes,
                     const_cast<void*>(source), bytes);
}

}  // namespace spccl::runtime
