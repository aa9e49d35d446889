// kernels/ neither allocates nor makes system calls: malloc and its kin are counted, which every
// operator new calls too, and the calls are made where the kernel kills a process that makes any
// (seccomp's strict mode).
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "kernels/host/codec.h"
#include "kernels/host/dense.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

extern "C" {
#if defined(__SANITIZE_ADDRESS__)
// It has an allocator of its own, for operator new too, and tells of each allocation.
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, size_t),
                                              void (*freed)(const volatile void*));
#else
// Before the C library's, which do the work.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) noexcept {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  ++allocations;
  return __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  ++allocations;
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
#endif
}  // extern "C"

namespace spccl {
namespace {

constexpr uint64_t kElements = 3 * 4096 + 77;

struct Memory {
  std::vector<uint8_t> dense = std::vector<uint8_t>(kElements * 8, 0);
  std::vector<uint8_t> other = std::vector<uint8_t>(kElements * 8, 0);
  std::vector<uint8_t> frame = std::vector<uint8_t>(kElements * 24 + 4096, 0);
  const std::vector<uint8_t> zeros = std::vector<uint8_t>(kElements * 8, 0);

  Memory() {
    for (size_t i = 0; i < dense.size(); i += 24) dense[i] = 1;
  }
};

// The lossy formats' functions.
bool CallLossy(DType dtype, Memory& memory) {
  const auto finish = [&](const Encoded& encoded) {
    Decode(memory.frame.data(), memory.other.data(), Stores::kStreaming);
    ReduceInto(memory.frame.data(), memory.other.data(), dtype);
    return Validate(memory.frame.data(), encoded.frame_bytes, dtype, kElements).ok();
  };
  const std::vector<uint8_t>& dense = memory.dense;
  bool valid =
      finish(EncodeErrorBound(dtype, dense.data(), kElements, {1e-3, true}, memory.frame.data()));
  for (const Format format : {Format::kQsgd2, Format::kQsgd4, Format::kQsgd8}) {
    const auto encoded =
        EncodeQsgd(format, dtype, memory.zeros.data(), kElements, {.seed = 1}, memory.frame.data());
    valid = valid && encoded.has_value() && finish(*encoded);
  }
  return valid;
}

// Every function for every format and dtype; false if a frame was found invalid.
bool CallEverything(Memory& memory) {
  bool valid = true;
  const void* const inputs[] = {memory.dense.data(), memory.other.data()};
  void* const outputs[] = {memory.frame.data(), memory.other.data()};
  for (int code = 0; code < kDTypeCount; ++code) {
    const DType dtype = static_cast<DType>(code);
    for (int format = 0; format < kExactFormatCount; ++format) {
      const Encoded encoded = Encode(static_cast<Format>(format), dtype, memory.dense.data(),
                                     kElements, memory.frame.data());
      valid = valid && Validate(memory.frame.data(), encoded.frame_bytes, dtype, kElements).ok();
      valid = valid && Validate(memory.frame.data(), encoded.frame_bytes).ok();
      Decode(memory.frame.data(), memory.other.data(), Stores::kStreaming);
      ReduceInto(memory.frame.data(), memory.other.data(), dtype);
      CountNonzeros(dtype, memory.dense.data(), kElements);
      EstimateNonzeros(dtype, memory.dense.data(), kElements);
    }
    valid = valid && WrapDense(dtype, kElements, memory.frame.data()) > 0;
    if (LossyCarries(dtype)) valid = valid && CallLossy(dtype, memory);
    for (int op = 0; op < kRedOpCount; ++op) {
      Reduce(dtype, static_cast<RedOp>(op), inputs, outputs, kElements, true);
      Widen(dtype, static_cast<RedOp>(op), memory.dense.data(), memory.frame.data(), kElements);
      Accumulate(AccumulatorOf(dtype, static_cast<RedOp>(op)), static_cast<RedOp>(op),
                 memory.frame.data(), memory.other.data(), kElements);
      Finish(dtype, static_cast<RedOp>(op), memory.other.data(), memory.frame.data(), kElements, 3);
    }
  }
  CopyToMany(memory.dense.data(), outputs, kElements, true);
  return valid;
}

class NoAllocationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
#if defined(__SANITIZE_ADDRESS__)
    ASSERT_GT(__sanitizer_install_malloc_and_free_hooks(
                  [](const volatile void*, size_t) { ++allocations; }, [](const volatile void*){}),
              0);
#endif
  }
};

// Through volatile pointers, or the compiler leaves the pairs out.
TEST_F(NoAllocationTest, EveryAllocationIsCounted) {
  struct alignas(256) Aligned {
    char bytes[256];
  };
  void* volatile block = nullptr;
  void* aligned = nullptr;
  char* volatile one = nullptr;
  Aligned* volatile big = nullptr;
  const auto counted = [](const auto& allocate) {
    const int before = allocations;
    allocate();
    return allocations - before;
  };
  EXPECT_GT(counted([&] { block = std::malloc(8); }), 0);
  std::free(block);
  EXPECT_GT(counted([&] { block = std::realloc(nullptr, 8); }), 0);
  std::free(block);
  EXPECT_GT(counted([&] { block = std::calloc(8, 8); }), 0);
  std::free(block);
  EXPECT_GT(counted([&] { block = std::aligned_alloc(64, 64); }), 0);
  std::free(block);
  EXPECT_GT(counted([&] { EXPECT_EQ(::posix_memalign(&aligned, 64, 64), 0); }), 0);
  std::free(aligned);
  EXPECT_GT(counted([&] { one = new char; }), 0);
  delete one;
  EXPECT_GT(counted([&] { big = new Aligned; }), 0);
  delete big;
}

TEST_F(NoAllocationTest, NothingIsAllocated) {
  Memory memory;
  for (const std::string_view target : AvailableTargets()) {
    ASSERT_TRUE(ForceTarget(target));
    const int before = allocations;
    const bool valid = CallEverything(memory);
    EXPECT_EQ(allocations, before) << target;
    EXPECT_TRUE(valid);
  }
  ForceTarget("");
}

// In strict mode only read, write, exit and sigreturn are allowed; anything else is SIGKILL. The
// child uses even the first dispatch there.
TEST_F(NoAllocationTest, NoSystemCallIsMade) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer makes system calls of its own";
#endif
  Memory memory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    const bool valid = CallEverything(memory);
    syscall(SYS_exit, valid ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace spccl
