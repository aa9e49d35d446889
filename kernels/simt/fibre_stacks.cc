#include "kernels/simt/fibre_stacks.h"

#include <sys/mman.h>

#include <new>

namespace spccl::simt {
namespace {

// Kernel bodies keep little on the stack, sanitizers add to it.
constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kGuardBytes = 4 << 10;
constexpr size_t kStride = kGuardBytes + kStackBytes;

}  // namespace

FibreStacks::FibreStacks(uint32_t count) : bytes_(count * kStride) {
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
#if !defined(SPCCL_FIBRE_TSAN)  // each guard parts the piece
  for (uint32_t i = 0; i < count; ++i) {
    if (::mprotect(memory_ + i * kStride, kGuardBytes, PROT_NONE) == 0) continue;
    ::munmap(memory_, bytes_);
    throw std::bad_alloc();
  }
#endif
}

FibreStacks::~FibreStacks() {
  ::munmap(memory_, bytes_);
}

std::span<char> FibreStacks::at(uint32_t i) const {
  return {memory_ + i * kStride + kGuardBytes, kStackBytes};
}

}  // namespace spccl::simt
