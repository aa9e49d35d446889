#include "tests/daemon/file_traps.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace spccl::testing {

std::atomic<Trap> g_rename_trap{Trap::kNone}, g_fsync_trap{Trap::kNone};
std::atomic<int> g_held{0};

namespace {

bool Sprung(std::atomic<Trap>* trap) {
  if (*trap == Trap::kDie) _exit(kDiedInTrap);
  if (*trap == Trap::kHold) {
    ++g_held;
    g_held.notify_all();
    trap->wait(Trap::kHold);
  }
  Trap expected = Trap::kFailAfter;
  if (trap->compare_exchange_strong(expected, Trap::kFail)) return false;
  return *trap == Trap::kFail;
}

bool IsFolder(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace
}  // namespace spccl::testing

// They stand in front of the C library's, so that a test can end the process between two calls.
extern "C" __attribute__((visibility("default"))) int rename(const char* from, const char* to) {
  if (spccl::testing::Sprung(&spccl::testing::g_rename_trap)) {
    errno = EIO;
    return -1;
  }
  using Rename = int (*)(const char*, const char*);
  return reinterpret_cast<Rename>(::dlsym(RTLD_NEXT, "rename"))(from, to);
}
extern "C" __attribute__((visibility("default"))) int fsync(int fd) {
  if (spccl::testing::Sprung(&spccl::testing::g_fsync_trap) ||
      (spccl::testing::g_fsync_trap == spccl::testing::Trap::kFailFolder &&
       spccl::testing::IsFolder(fd))) {
    errno = ENOSPC;
    return -1;
  }
  using Fsync = int (*)(int);
  return reinterpret_cast<Fsync>(::dlsym(RTLD_NEXT, "fsync"))(fd);
}
