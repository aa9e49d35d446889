// What fork() does to the library.
#include "client/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/client/client_test.h"

// The parent has threads (the daemon's, the session's) when it forks, and the child starts some; a
// session that is dead at the end joins its thread only when it is replaced. Visible, because the
// sanitizer's library looks for it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0:report_thread_leaks=0";
}

namespace spccl::client {
namespace {

class ForkTest : public testing::ClientTest {
 protected:
  // The exit status of a child that runs `body`; a body that returns 0 is content.
  template <typename Body>
  static int InChild(Body body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body());
    int status = -1;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(ForkTest, AChildRefusesTheParentsHandles) {
  const spcclComm_t comm = OneRank();
  spcclStream_t stream;
  ASSERT_EQ(spcclStreamCreate(&stream), spcclSuccess);
  const int line = InChild([&] {
    int count;
    float value = 0;
    if (spcclCommCount(comm, &count) != spcclInvalidUsage) return __LINE__;
    if (LastError().find("before fork()") == std::string::npos) return __LINE__;
    if (spcclStreamQuery(stream) != spcclInvalidUsage) return __LINE__;
    if (spcclCommDestroy(comm) != spcclInvalidUsage) return __LINE__;
    if (spcclAllReduce(&value, &value, 1, spcclFloat, spcclSum, comm, nullptr) !=
        spcclInvalidUsage) {
      return __LINE__;
    }
    return 0;
  });
  EXPECT_EQ(line, 0);
  // And has harmed nothing.
  std::vector<float> send = Rising(8), recv(8);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(spcclStreamDestroy(stream), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(ForkTest, AChildOpensItsOwnSession) {
  const spcclComm_t comm = OneRank();
  void* memory;
  ASSERT_EQ(spcclMemAlloc(&memory, 4096), spcclSuccess);
  const int line = InChild([&] {
    if (spcclMemFree(memory) != spcclInvalidArgument) return __LINE__;
    spcclUniqueId id;
    if (spcclGetUniqueId(&id) != spcclSuccess) return __LINE__;
    spcclComm_t own;
    if (spcclCommInitRank(&own, 1, id, 0) != spcclSuccess) return __LINE__;
    if (own == comm) return __LINE__;
    if (spcclCommDestroy(own) != spcclSuccess) return __LINE__;
    return 0;
  });
  EXPECT_EQ(line, 0);
  EXPECT_EQ(daemon_.sessions(), 2u);
  EXPECT_EQ(spcclMemFree(memory), spcclSuccess);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

TEST_F(ForkTest, AGroupDoesNotCrossTheFork) {
  const spcclComm_t comm = OneRank();
  std::vector<float> send = Rising(8), recv(8);
  ASSERT_EQ(spcclGroupStart(), spcclSuccess);
  EXPECT_EQ(Sum(send, &recv, comm), spcclSuccess);
  EXPECT_EQ(InChild([] { return spcclGroupEnd() == spcclInvalidUsage ? 0 : __LINE__; }), 0);
  EXPECT_EQ(spcclGroupEnd(), spcclSuccess);
  EXPECT_EQ(recv, send);
  EXPECT_EQ(spcclCommDestroy(comm), spcclSuccess);
}

}  // namespace
}  // namespace spccl::client
