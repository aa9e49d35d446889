// How the real spccld ends. What happens when its clients are killed: tests/fault.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/kept_descriptors.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_env.h"
#include "tests/support/frozen_threads.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"
#include "tests/support/temp_folder.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::FormComm;
using ::spccl::testing::FrozenThreads;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::spccl::testing::SpawnedDaemon;

constexpr int64_t kPatienceMs = 30'000;

std::unique_ptr<SpawnedDaemon> StartDaemon(std::vector<std::string> flags = {}) {
  auto daemon = SpawnedDaemon::Start(std::move(flags));
  EXPECT_THAT(daemon, IsOk());
  return daemon.ok() ? *std::move(daemon) : nullptr;
}

TEST(SpccldTest, StopsOnSigtermAndTakesItsSocketsAway) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  auto client = RawClient::Open(daemon->socket_path());
  ASSERT_THAT(client, IsOk());
  daemon->Signal(SIGTERM);
  EXPECT_THAT(client->AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_TRUE(client->AwaitHangup());
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 0) << daemon->ReadLog();
  EXPECT_NE(::access(daemon->socket_path().c_str(), F_OK), 0);
  EXPECT_NE(::access((daemon->runtime_dir() + "/control.sock").c_str(), F_OK), 0);
}

TEST(SpccldTest, MayOpenAllButWhatIsKeptForDescriptorsThatClientsPass) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  rlimit limit;
  ASSERT_EQ(::prlimit(daemon->pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max - DescriptorsToKeep(limit.rlim_max));
}

TEST(SpccldTest, LivesWhereItsLogMayBeNoLarger) {
  ::signal(SIGXFSZ, SIG_DFL);  // which would end it
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  auto rude = RawClient::Open(daemon->socket_path());
  auto other = RawClient::Open(daemon->socket_path());
  ASSERT_THAT(rude, IsOk());
  ASSERT_THAT(other, IsOk());
  const std::string before = daemon->ReadLog();
  const rlimit nothing{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(::prlimit(daemon->pid(), RLIMIT_FSIZE, &nothing, nullptr), 0);
  EXPECT_THAT(rude->SendBytes("rubbish", 7), IsOk());  // a line of the log
  EXPECT_TRUE(rude->AwaitHangup());
  EXPECT_THAT(other->UniqueId(), IsOk());
  EXPECT_EQ(daemon->ReadLog(), before);
}

std::string Binary() {
  const auto self = std::filesystem::canonical("/proc/self/exe");
  return self.parent_path().parent_path() / "bin/spccld";
}

TEST(SpccldTest, SaysThatItMayOpenTooLittle) {
  const spccl::testing::TempFolder folder;
  const std::string log = folder.path() + "/log";
  for (const int limit : {12, 16, 31}) {  // the shell needs the first eleven
    const std::string command =
        absl::StrCat("ulimit -n ", limit, "; exec ", Binary(), " --runtime-dir ", folder.path(),
                     "/run --state-dir ", folder.path(), "/state 2> ", log);
    const int ended = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(ended)) << limit;
    EXPECT_EQ(WEXITSTATUS(ended), 2) << limit;
    std::ifstream file(log);
    const std::string told((std::istreambuf_iterator<char>(file)), {});
    EXPECT_THAT(told, ::testing::AllOf(::testing::HasSubstr("cannot start"),
                                       ::testing::HasSubstr("RLIMIT_NOFILE")));
  }
}

// A pipe that is full, and has not been set not to block.
void MakeFullPipe(UniqueFd* read, UniqueFd* write) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  read->Reset(ends[0]);
  write->Reset(ends[1]);
  const std::vector<char> block(4096);
  while (::write(write->get(), block.data(), block.size()) > 0) continue;
  ASSERT_EQ(::fcntl(write->get(), F_SETFL, 0), 0);
}

// One whose standard error a test has made, or closed (-1, with the other two), which serves.
class OddDaemon {
 public:
  explicit OddDaemon(int standard_error) {
    const std::string binary = Binary(), state = folder_.path() + "/state";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (standard_error >= 0) {
        ::dup2(standard_error, STDERR_FILENO);
      } else {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
      }
      ::execl(binary.c_str(), binary.c_str(), "--runtime-dir", folder_.path().c_str(),
              "--state-dir", state.c_str(), nullptr);
      std::_Exit(1);
    }
    pidfd_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    const std::string control = folder_.path() + "/control.sock";  // the last that it opens
    while (::access(control.c_str(), F_OK) != 0 && !HasEnded(1)) continue;
  }
  const std::string& folder() const { return folder_.path(); }
  pid_t pid() const { return pid_; }
  // Whether it has ended well within the time.
  bool Stop() {
    ::kill(pid_, SIGTERM);
    const bool ended = HasEnded(kPatienceMs);
    ::kill(pid_, SIGKILL);
    int status = 0;
    return ::waitpid(pid_, &status, 0) == pid_ && ended && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
  }

 private:
  bool HasEnded(int timeout_ms) const {
    pollfd query{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&query, 1, timeout_ms) == 1;
  }

  const spccl::testing::TempFolder folder_;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

TEST(SpccldTest, ALogThatNobodyReadsHoldsUpNeitherClientsNorItsEnd) {
  UniqueFd read, write;
  MakeFullPipe(&read, &write);
  OddDaemon daemon(write.get());
  EXPECT_THAT(RawClient::Open(SessionSocketPath(daemon.folder())), IsOk());
  EXPECT_TRUE(daemon.Stop());
}

TEST(SpccldTest, WhereStandardErrorIsClosedNoOtherFileTakesTheLog) {
  OddDaemon daemon(-1);
  EXPECT_THAT(RawClient::Open(SessionSocketPath(daemon.folder())), IsOk());
  EXPECT_TRUE(daemon.Stop());
  std::ifstream lock(daemon.folder() + "/state/lock");
  std::ostringstream text;
  text << lock.rdbuf();
  EXPECT_EQ(text.str(), std::to_string(daemon.pid()) + "\n");
}

TEST(SpccldTest, WhatCannotBePrintedIsAFailure) {
  const std::string binary = Binary();
  for (const char* flag : {"--print-config", "--help", "--version"}) {
    const std::string command = binary + " " + flag + " 2>&1 >/dev/full";
    FILE* const errors = ::popen(command.c_str(), "r");
    ASSERT_NE(errors, nullptr);
    char text[256] = {};
    EXPECT_NE(std::fgets(text, sizeof text, errors), nullptr);
    EXPECT_EQ(WEXITSTATUS(::pclose(errors)), 2) << flag;
    EXPECT_THAT(text, ::testing::HasSubstr("standard output could not be written")) << flag;
  }
}

// Where any port will do, the log is where it is found.
TEST(SpccldTest, TheLogSaysWhereItListensForPeers) {
  if (!SPCCL_WITH_UCX) GTEST_SKIP() << "a build without UCX has no peers";
  const auto daemon = StartDaemon({"--peers-listen=127.0.0.1:0", "--peers-advertise=localhost:7"});
  if (daemon == nullptr) return;
  const std::string log = daemon->ReadLog();
  EXPECT_THAT(log, ::testing::ContainsRegex("listening for peers.*127.0.0.1:[1-9][0-9]*"));
  EXPECT_THAT(log, ::testing::HasSubstr("localhost:7"));
}

TEST(SpccldTest, ASecondSigtermStopsItAtOnceWhateverRuns) {
  const auto daemon = StartDaemon({"--stop-timeout", "10m"});
  ASSERT_NE(daemon, nullptr);
  FrozenThreads channels(daemon->pid(), "spccl-ch");
  if (channels.count() == 0) GTEST_SKIP() << "ptrace is not permitted here";
  auto ranks = FormComm(daemon->socket_path(), 1);
  ASSERT_THAT(ranks, IsOk());
  RawRank& rank = (*ranks)[0];
  constexpr uint64_t kCount = 1 << 20;  // too many for the core thread
  auto buffer = rank.client.Allocate(kCount * sizeof(float));
  ASSERT_THAT(buffer, IsOk());
  ASSERT_TRUE(rank.client.Push(AllReduceSlot(rank, *buffer, kCount, 0, 0)));
  // What comes after it is answered: so it has been taken.
  ASSERT_THAT(rank.client.UniqueId(), IsOk());
  daemon->Signal(SIGTERM);
  EXPECT_THAT(rank.client.AwaitNotice(shm::ReplyType::kGoodbye), IsOk());
  EXPECT_FALSE(daemon->Wait(0).ok());
  daemon->Signal(SIGTERM);
  channels.AwaitEnd();
  const auto code = daemon->Wait(kPatienceMs);
  ASSERT_THAT(code, IsOk());
  EXPECT_EQ(*code, 3) << daemon->ReadLog();
  for (const char* left : {"session.sock", "control.sock", "metrics.sock"}) {
    EXPECT_FALSE(std::filesystem::exists(daemon->runtime_dir() + "/" + left)) << left;
  }
}

}  // namespace
}  // namespace spccl::daemon
