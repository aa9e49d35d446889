// A stall that a test puts into another process.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"

namespace spccl::testing {

// Memory whose pages never come: who reads it waits for as long as `userfault` is open, on which
// the reads are told. nullptr: not permitted.
inline void* MemoryThatNeverAnswers(size_t bytes, UniqueFd* userfault) {
  userfault->Reset(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!userfault->valid()) return nullptr;
  uffdio_api api{};
  api.api = UFFD_API;
  if (::ioctl(userfault->get(), UFFDIO_API, &api) != 0) return nullptr;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register range{};
  range.range.start = reinterpret_cast<uint64_t>(memory);
  range.range.len = bytes;
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ::ioctl(userfault->get(), UFFDIO_REGISTER, &range) == 0 ? memory : nullptr;
}

}  // namespace spccl::testing
