// What fork() does to the library.
#include "client/process.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
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

// Lets this process open so many descriptors more.
bool LeaveDescriptors(int left) {
  // The lowest number that is free, and above which none is taken.
  int highest = 2;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    highest = std::max(highest, std::stoi(entry.path().filename()));
  }
  int filled;
  while ((filled = ::dup(0)) <= highest) {
    if (filled < 0) return false;
  }
  ::close(filled);
  const rlim_t most = static_cast<rlim_t>(filled) + static_cast<rlim_t>(left);
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

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

// In a child, so that the daemon, which is in this process, has enough. However few there are, it
// is the descriptors that are blamed, not the daemon.
TEST_F(ForkTest, TooFewDescriptorsAreNamed) {
  constexpr int kEnough = 32;
  int named = 0;
  for (int left = 0; left < kEnough; ++left) {
    const int line = InChild([left] {
      if (!LeaveDescriptors(left)) return __LINE__;
      spcclUniqueId id;
      const spcclResult_t result = spcclGetUniqueId(&id);
      if (result == spcclSuccess) return 0;
      if (result != spcclSystemError) return __LINE__;
      if (LastError().find("RLIMIT_NOFILE") != std::string::npos) return 1;
      return LastError().find("Too many open files") != std::string::npos ? 2 : __LINE__;
    });
    EXPECT_THAT(line, ::testing::AnyOf(0, 1, 2)) << left;
    if (line == 1) ++named;
    if (line == 0) break;
    EXPECT_LT(left, kEnough - 1);
  }
  EXPECT_GT(named, 0);
}

TEST_F(ForkTest, WithoutADescriptorForRelaysThereAreNone) {
  daemon_.OfferRelays();
  const int line = InChild([] {
    ::setenv("SPCCL_RELAY_BYTES", "1", 1);
    const spcclComm_t comm = OneRank();
    if (!LeaveDescriptors(0)) return __LINE__;
    // The daemon, which is the parent, moves what it has itself there.
    static float values[8];
    for (int call = 0; call < 2; ++call) {
      if (spcclAllReduce(values, values, 8, spcclFloat, spcclSum, comm, nullptr) != spcclSuccess) {
        return __LINE__;
      }
    }
    return spcclCommDestroy(comm) == spcclSuccess ? 0 : __LINE__;
  });
  EXPECT_EQ(line, 0);
  EXPECT_EQ(daemon_.Requests(shm::RequestType::kCommRelays), 1u);
  EXPECT_EQ(daemon_.sessions(), 1u);
  const auto submissions = daemon_.submissions();
  ASSERT_EQ(submissions.size(), 2u);
  for (const shm::Submission& submission : submissions) EXPECT_EQ(submission.relay, 0u);
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
