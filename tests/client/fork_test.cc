// A fork() while another thread of the library loads a driver.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "tests/client/client_test.h"
#include "tests/support/temp_folder.h"

// The child starts threads, and the parent has some when it forks. Visible, because the sanitizer's
// library looks for it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0:report_thread_leaks=0";
}

namespace {

std::function<void()> g_initialise, g_cu_init;

std::atomic<bool> g_is_inside{false};   // a thread is in the loader
std::atomic<bool> g_was_inside{false};  // and was at the fork()

}  // namespace

// What the drivers call (calling_driver.c).
extern "C" __attribute__((visibility("default"))) void TestInitialise() {
  if (g_initialise) g_initialise();
}
extern "C" __attribute__((visibility("default"))) void TestCuInit() {
  if (g_cu_init) g_cu_init();
}

namespace spccl::client {
namespace {

// 'S' for a thread that sleeps.
char StateOf(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const size_t name_end = text.str().rfind(')');
  return name_end + 2 < text.str().size() ? text.str()[name_end + 2] : '?';
}

void Await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

class LoaderForkTest : public testing::ClientTest {
 protected:
  // Of the handlers before a fork() the first registered is the last to run.
  static void SetUpTestSuite() {
    ASSERT_EQ(::pthread_atfork([] { g_was_inside = g_is_inside.load(); }, nullptr, nullptr), 0);
  }
  ~LoaderForkTest() override {
    g_initialise = g_cu_init = nullptr;
    ::unsetenv("SPCCL_CUDA_LIBRARY");
  }

  static spcclResult_t Join() {
    spcclComm_t comm;
    const spcclResult_t made = spcclCommInitAll(&comm, 1, nullptr);
    return made == spcclSuccess ? spcclCommDestroy(comm) : made;
  }

  // fork(), in the child of which joining loads this driver, and finds what it needs.
  pid_t Fork(const std::string& driver) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    g_cu_init = nullptr;
    (void)::rename(needed_.c_str(), pipe_.c_str());
    ::setenv("SPCCL_CUDA_LIBRARY", driver.c_str(), 1);
    ::_exit(Join() == spcclSuccess ? 0 : 1);
  }

  static void ExpectWorks(pid_t child) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Join(), spcclSuccess);
  }

  // One that is not loaded yet.
  std::string Copy(const std::string& library, const std::string& name) {
    std::filesystem::copy_file(library, folder_.path() + name);
    return folder_.path() + name;
  }

  // A thread that loads this is in the midst of it for as long as the other end of a pipe is open,
  // and fails then.
  std::string LibraryThatNeedsAPipe() {
    EXPECT_EQ(::mkfifo(pipe_.c_str(), 0600), 0);
    std::filesystem::copy_file(SPCCL_NEEDED_LIBRARY, needed_);
    return Copy(SPCCL_NEEDING_DRIVER, "/needing.so");
  }

  // Forks while a thread that joins loads that library, which the child loads too.
  void ForkWhileLoading(const std::string& library, spcclResult_t joined) {
    std::atomic<bool> has_forked{false};
    std::atomic<pid_t> forking{0};
    // First: no thread is made while the loader is at it.
    std::thread writer([&] {
      const UniqueFd end(::open(pipe_.c_str(), O_WRONLY | O_CLOEXEC));  // once the loader has
      g_is_inside = true;
      while (forking == 0) std::this_thread::yield();
      while (!has_forked && StateOf(forking) != 'S') std::this_thread::yield();
      g_is_inside = false;
    });
    std::thread joiner([&] { EXPECT_EQ(Join(), joined) << LastError(); });
    Await(g_is_inside);
    forking = ::gettid();
    const pid_t child = Fork(library);
    has_forked = true;
    EXPECT_FALSE(g_was_inside);
    writer.join();
    joiner.join();
    ::unsetenv("SPCCL_CUDA_LIBRARY");
    ExpectWorks(child);
  }

  const testing::TempFolder folder_;
  const std::string needed_ = folder_.path() + "/needed.so";
  const std::string pipe_ = folder_.path() + "/libspccl_old_cuda.so";
};

TEST_F(LoaderForkTest, ADriverIsLoadedOrNot) {
  const std::string library = LibraryThatNeedsAPipe();
  ::setenv("SPCCL_CUDA_LIBRARY", library.c_str(), 1);
  ForkWhileLoading(library, spcclInvalidArgument);
}

TEST_F(LoaderForkTest, ADriverHasLoadedALibraryOrNot) {
  const std::string library = LibraryThatNeedsAPipe();
  ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_CALLING_DRIVER, 1);
  g_cu_init = [&] { EXPECT_EQ(::dlopen(library.c_str(), RTLD_NOW), nullptr); };
  ForkWhileLoading(library, spcclSuccess);
}

// The one has what the other waits for. Would wait for ever if the fork() did.
TEST_F(LoaderForkTest, AnInitialiserForksWhileWeWaitForTheLoader) {
  ::setenv("SPCCL_CUDA_LIBRARY", SPCCL_CALLING_DRIVER, 1);
  std::atomic<bool> is_inside{false}, initialises{false};
  g_cu_init = [&] {
    is_inside = true;
    Await(initialises);
    EXPECT_NE(::dlopen("libm.so.6", RTLD_NOW), nullptr);
  };
  std::thread joiner([] { EXPECT_EQ(Join(), spcclSuccess) << LastError(); });
  Await(is_inside);
  pid_t child = -1;
  g_initialise = [&] {
    initialises = true;
    child = Fork(SPCCL_CALLING_DRIVER);
  };
  const std::string library = Copy(SPCCL_CALLING_DRIVER, "/forking.so");
  EXPECT_NE(::dlopen(library.c_str(), RTLD_NOW), nullptr) << ::dlerror();
  joiner.join();
  g_cu_init = nullptr;
  ExpectWorks(child);
}

}  // namespace
}  // namespace spccl::client
