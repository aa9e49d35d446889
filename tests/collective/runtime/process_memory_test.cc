#include "collective/runtime/process_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "tests/support/process_memory.h"
#include "tests/support/status_test.h"

namespace spccl::runtime {
namespace {

using spccl::testing::FailsWith;
using spccl::testing::IsOk;
using spccl::testing::MemoryDescriptors;
using spccl::testing::TakeMemory;
using ::testing::HasSubstr;

// A process that waits, and runs another program when told.
class Child {
 public:
  Child() {
    int ready[2], go[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(go, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      ::close(go[1]);
      char byte = 0;
      if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(1);
      ::execlp("sleep", "sleep", "1000", nullptr);
      ::_exit(2);
    }
    ::close(ready[1]);
    ::close(go[0]);
    ready_.Reset(ready[0]);
    go_.Reset(go[1]);
    char byte;
    EXPECT_EQ(::read(ready_.get(), &byte, 1), 1);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void RunAnotherProgram() {
    char byte = 0;
    ASSERT_EQ(::write(go_.get(), &byte, 1), 1);
    // The end that is closed on exec.
    ASSERT_EQ(::read(ready_.get(), &byte, 1), 0);
  }

 private:
  pid_t pid_ = 0;
  UniqueFd ready_, go_;
};

// Makes Linux before 6.11 of it, for this thread: no ioctl of a maps file. Whether that was
// possible.
bool PretendOlderKernel() {
  const unsigned int query = _IOWR('f', 17, char[104]);  // PROCMAP_QUERY
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, query, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

char shown[64] = "what the process had before";

TEST(ProcessMemoryTest, WhatTheProcessBecomesIsOutOfReach) {
  Child child;
  const auto memory = TakeMemory(child.pid());
  ASSERT_THAT(memory, IsOk());
  char read[sizeof shown] = {};
  const auto address = reinterpret_cast<uint64_t>(shown);
  ASSERT_THAT((*memory)->Read(address, read, sizeof read), IsOk());
  EXPECT_STREQ(read, shown);
  child.RunAnotherProgram();
  ASSERT_THAT(TakeMemory(child.pid()), IsOk());  // there is memory, another one
  EXPECT_THAT((*memory)->Read(address, read, sizeof read),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("read 64 bytes")));
  EXPECT_THAT((*memory)->Write(address, read, sizeof read),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("write 64 bytes")));
}

TEST(ProcessMemoryTest, OneThatHasEndedIsNotFound) {
  auto child = std::make_unique<Child>();
  const auto memory = TakeMemory(child->pid());
  ASSERT_THAT(memory, IsOk());
  child.reset();
  char byte;
  EXPECT_THAT((*memory)->Read(reinterpret_cast<uint64_t>(shown), &byte, 1),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("stopped at 0x")));
}

const char never_changed[64] = "read only";

void WritesOnlyWhereTheProcessMay() {
  const auto own = TakeMemory(::getpid());
  ASSERT_THAT(own, IsOk());
  char text[sizeof never_changed] = {};
  const auto address = reinterpret_cast<uint64_t>(never_changed);
  ASSERT_THAT((*own)->Read(address, text, sizeof text), IsOk());
  EXPECT_STREQ(text, never_changed);
  text[0] = 'R';
  EXPECT_THAT((*own)->Write(address, text, sizeof text),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("may not write")));
  // As the linker left it: the compiler believes it anyway.
  EXPECT_EQ(*const_cast<const volatile char*>(never_changed), 'r');
  char result[sizeof text] = {};
  ASSERT_THAT((*own)->Write(reinterpret_cast<uint64_t>(result), text, sizeof text), IsOk());
  EXPECT_STREQ(result, "Read only");
  auto child = std::make_unique<Child>();
  const auto memory = TakeMemory(child->pid());
  ASSERT_THAT(memory, IsOk());
  child.reset();
  EXPECT_THAT((*memory)->Write(reinterpret_cast<uint64_t>(shown), text, 1),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("stopped at 0x")));
}

TEST(ProcessMemoryTest, WritesOnlyWhereTheProcessMay) {
  WritesOnlyWhereTheProcessMay();
}

TEST(ProcessMemoryTest, WritesOnlyWhereTheProcessMayOnAnOlderKernel) {
  bool pretended = false;
  std::thread([&] {
    pretended = PretendOlderKernel();
    if (pretended) WritesOnlyWhereTheProcessMay();
  }).join();
  if (!pretended) GTEST_SKIP() << "no system call filters here";
}

TEST(ProcessMemoryTest, MappedMemoryThatIsNotGivenIsToldFromMemoryThatIsNotMapped) {
  const auto own = TakeMemory(::getpid());
  ASSERT_THAT(own, IsOk());
  const UniqueFd empty(::memfd_create("empty", MFD_CLOEXEC));
  void* const past_the_end = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, empty.get(), 0);
  ASSERT_NE(past_the_end, MAP_FAILED);
  char byte = 0;
  const auto address = reinterpret_cast<uint64_t>(past_the_end);
  EXPECT_THAT((*own)->Read(address, &byte, 1),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("SPCCL_FORCE_STAGING=1")));
  ASSERT_EQ(::munmap(past_the_end, 4096), 0);
  EXPECT_THAT((*own)->Read(address, &byte, 1),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("Bad address")));
}

TEST(ProcessMemoryTest, OnlyItsTwoFilesAreTaken) {
  const auto refused = [](UniqueFd memory, UniqueFd maps) {
    std::array<UniqueFd, 2> fds = {std::move(memory), std::move(maps)};
    const absl::Status status = ProcessMemory::Take(::getpid(), fds).status();
    EXPECT_TRUE(fds[0].valid() && fds[1].valid());  // whose they were closes them
    return status;
  };
  const auto open = [](const char* path, int mode) { return UniqueFd(::open(path, mode)); };
  const auto mem = [&] { return open("/proc/self/mem", O_RDWR); };
  const auto maps = [&] { return open("/proc/self/maps", O_RDONLY); };
  const auto says = [](const char* text) {
    return FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(refused(maps(), mem()), says("/mem"));
  EXPECT_THAT(refused(open("/proc/self/mem", O_RDONLY), maps()), says("to read and write"));
  EXPECT_THAT(refused(open("/proc/self/oom_score_adj", O_RDWR), maps()), says("is not of /proc/"));
  EXPECT_THAT(refused(open("/dev/zero", O_RDWR), maps()), says("/mem"));
  EXPECT_THAT(refused(mem(), open("/proc/self/maps", O_PATH)), says("not opened to read"));
  EXPECT_THAT(refused(mem(), UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0))), says("/maps"));
  EXPECT_THAT(refused(mem(), open("/dev/null", O_RDONLY)), says("/maps"));
  const Child other;
  auto others = MemoryDescriptors(other.pid());
  EXPECT_THAT(refused(std::move(others[0]), maps()), says("/mem"));
  EXPECT_THAT(ProcessMemory::Take(::getpid(), {}), says("0 descriptors, expected two"));
}

}  // namespace
}  // namespace spccl::runtime
