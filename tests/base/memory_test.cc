#include "base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl {
namespace {

using ::testing::HasSubstr;

TEST(CreateSealedMemfdTest, CanNeitherShrinkNorGrowNorTakeMoreSeals) {
  auto fd = CreateSealedMemfd("sealed", 8192);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(::ftruncate(fd->get(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 16384), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(CreateSealedMemfdTest, IsClosedOnExec) {
  auto fd = CreateSealedMemfd("cloexec", 4096);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(CreateSealedMemfdTest, AnImpossibleSizeIsAnError) {
  auto fd = CreateSealedMemfd("huge", SIZE_MAX);
  ASSERT_FALSE(fd.ok());
  EXPECT_THAT(std::string(fd.status().message()), HasSubstr("huge"));
}

bool IsPending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, signal) == 1;
}

// As the system raises SIGXFSZ for it, which ends a process.
TEST(CreateSealedMemfdTest, AboveTheProcesssFileSizeIsAnErrorOnly) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  sigset_t mask_before, mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto fits = CreateSealedMemfd("small", 4096);
  const auto refused = CreateSealedMemfd("large", 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("large to 8192 bytes"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("RLIMIT_FSIZE"));
  EXPECT_FALSE(IsPending(SIGXFSZ));
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGXFSZ), ::sigismember(&mask_before, SIGXFSZ));
}

TEST(CreateSealedMemfdTest, AFileSizeSignalOfTheProgramsStays) {
  sigset_t signal, before;
  ::sigemptyset(&signal);
  ::sigaddset(&signal, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signal, &before);
  ASSERT_EQ(::raise(SIGXFSZ), 0);
  EXPECT_TRUE(CreateSealedMemfd("any", 4096).ok());
  EXPECT_TRUE(IsPending(SIGXFSZ));
  const timespec now{};
  EXPECT_EQ(::sigtimedwait(&signal, nullptr, &now), SIGXFSZ);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(CheckMappedTest, FindsAHole) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(memory);
  EXPECT_TRUE(CheckMapped(bytes, 4 * page).ok());
  ASSERT_EQ(::munmap(bytes + 2 * page, page), 0);
  EXPECT_TRUE(CheckMapped(bytes + 1, 2 * page - 1).ok());
  EXPECT_TRUE(CheckMapped(bytes + 3 * page, 1).ok());
  for (const size_t size : {2 * page + 1, 4 * page, SIZE_MAX}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckMapped(bytes, size))) << size;
  }
  EXPECT_FALSE(CheckMapped(bytes + 3 * page - 1, 1).ok());
  ::munmap(bytes, 4 * page);
}

TEST(CheckSealedMemfdTest, TellsTheSize) {
  auto fd = CreateSealedMemfd("size", 12345);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto size_bytes = CheckSealedMemfd(fd->get(), 12345);
  ASSERT_TRUE(size_bytes.ok()) << size_bytes.status();
  EXPECT_EQ(*size_bytes, 12345u);
}

TEST(CheckSealedMemfdTest, RefusesOneThatIsTooSmall) {
  auto fd = CreateSealedMemfd("small", 4095);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const absl::Status status = CheckSealedMemfd(fd->get(), 4096).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4095 bytes, expected at least 4096"));
}

TEST(CheckSealedMemfdTest, RefusesOneThatMayShrink) {
  UniqueFd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSealedMemfd(fd.get(), 4096).status()));
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSealedMemfd(fd.get(), 4096).status()));
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(CheckSealedMemfd(fd.get(), 4096).ok());
}

TEST(CheckSealedMemfdTest, RefusesWhatIsNoMemfd) {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSealedMemfd(null.get(), 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSealedMemfd(-1, 0).status()));
}

TEST(SharedMappingTest, TwoMappingsShowTheSameBytesAndOutliveTheDescriptor) {
  auto fd = CreateSealedMemfd("shared", 8192);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto first = SharedMapping::Create(fd->get(), 8192);
  auto second = SharedMapping::Create(fd->get(), 8192);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  fd->Reset();
  EXPECT_NE(first->data(), second->data());
  std::memcpy(first->data() + 8000, "written", 8);
  EXPECT_STREQ(reinterpret_cast<const char*>(second->data() + 8000), "written");
  EXPECT_EQ(first->size_bytes(), 8192u);
}

// So that huge pages of the memfd can be mapped as such.
TEST(SharedMappingTest, LargeOnesStartAtAHugePageAndLeaveNothingBehind) {
  constexpr size_t kHugePage = size_t{2} << 20;
  // Of the memfd, and reserved address space. AddressSanitizer reserves some of its own, which our
  // mapping may part in two: there only the memfd's count.
#ifdef __SANITIZE_ADDRESS__
  constexpr bool kCountReserved = false;
#else
  constexpr bool kCountReserved = true;
#endif
  const auto count_mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/memfd:large") != std::string::npos ||
          (kCountReserved && line.find(" ---p ") != std::string::npos)) {
        ++count;
      }
    }
    return count;
  };
  for (const size_t bytes : {kHugePage, kHugePage + 4096, 3 * kHugePage + 1}) {
    auto fd = CreateSealedMemfd("large", bytes);
    ASSERT_TRUE(fd.ok()) << fd.status();
    const auto before = count_mappings();
    {
      auto mapping = SharedMapping::Create(fd->get(), bytes);
      ASSERT_TRUE(mapping.ok()) << mapping.status();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->data()) % kHugePage, 0u);
      EXPECT_EQ(mapping->size_bytes(), bytes);
      EXPECT_EQ(count_mappings(), before + 1);
      mapping->data()[bytes - 1] = std::byte{1};
    }
    EXPECT_EQ(count_mappings(), before);
  }
}

TEST(SharedMappingTest, MoveHandsOverTheMapping) {
  auto fd = CreateSealedMemfd("moved", 4096);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto made = SharedMapping::Create(fd->get(), 4096);
  ASSERT_TRUE(made.ok()) << made.status();
  std::byte* const address = made->data();
  SharedMapping moved = *std::move(made);
  EXPECT_EQ(moved.data(), address);
  *moved.data() = std::byte{1};
}

// A client may seal its memory against writing: no mapping, and an error that says what failed.
TEST(SharedMappingTest, OfMemorySealedAgainstWritingIsAnError) {
  UniqueFd fd(::memfd_create("readonly", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
  auto mapping = SharedMapping::Create(fd.get(), 4096);
  ASSERT_FALSE(mapping.ok());
  EXPECT_THAT(std::string(mapping.status().message()), HasSubstr("mapping 4096 bytes"));
}

}  // namespace
}  // namespace spccl
