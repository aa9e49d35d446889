// A fork() while another thread of the library is in the loader.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "tests/client/client_test.h"

// The child starts threads, and the parent has some when it forks. Visible, because the sanitizer's
// library looks for it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0:report_thread_leaks=0";
}

namespace {

std::atomic<bool> g_is_met{false};      // whether the loader is to meet a fork()
std::atomic<bool> g_is_inside{false};   // a thread is in the loader
std::atomic<pid_t> g_forking{0};        // the thread that is about to fork()
std::atomic<bool> g_has_forked{false};  // and has; the child's copy means nothing
std::atomic<bool> g_was_inside{false};  // a thread was in the loader at the fork()

// 'S' for a thread that sleeps.
char StateOf(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const size_t name_end = text.str().rfind(')');
  return name_end + 2 < text.str().size() ? text.str()[name_end + 2] : '?';
}

// Stays inside until another thread has forked, or waits to be let.
void MeetFork() {
  g_is_inside = true;
  while (g_forking == 0) std::this_thread::yield();
  while (!g_has_forked && StateOf(g_forking) != 'S') std::this_thread::yield();
  g_is_inside = false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlopen(const char* name, int flags) {
  using Open = void* (*)(const char*, int);
  static const auto real = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "dlopen"));
  if (name == nullptr || std::strcmp(name, "libcuda.so.1") != 0) return real(name, flags);
  if (g_is_met.exchange(false)) MeetFork();
  return nullptr;
}

namespace spccl::client {
namespace {

class LoaderForkTest : public testing::ClientTest {
 protected:
  // Of the handlers before a fork() the first registered is the last to run.
  static void SetUpTestSuite() {
    ASSERT_EQ(::pthread_atfork([] { g_was_inside = g_is_inside.load(); }, nullptr, nullptr), 0);
  }
};

TEST_F(LoaderForkTest, NoThreadIsInTheLoaderAtAFork) {
  EXPECT_EQ(spcclCommDestroy(OneRank()), spcclSuccess);
  g_is_met = true;
  std::thread joiner([] { EXPECT_EQ(spcclCommDestroy(OneRank()), spcclSuccess); });
  while (!g_is_inside) std::this_thread::yield();
  g_forking = ::gettid();
  const pid_t child = ::fork();
  if (child == 0) {
    spcclComm_t comm;
    const bool works = spcclCommInitAll(&comm, 1, nullptr) == spcclSuccess &&
                       spcclCommDestroy(comm) == spcclSuccess;
    ::_exit(works ? 0 : 1);
  }
  g_has_forked = true;
  joiner.join();
  EXPECT_FALSE(g_was_inside);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(spcclCommDestroy(OneRank()), spcclSuccess);
}

}  // namespace
}  // namespace spccl::client
