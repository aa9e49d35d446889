#include "daemon/peer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Optional;

TEST(SlurmJobOfTest, FindsTheJobWhereSlurmstepdPutsIt) {
  EXPECT_THAT(SlurmJobOf("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n"),
              Optional(std::string("77")));
  EXPECT_THAT(SlurmJobOf("0::/system.slice/n1_slurmstepd.scope/job_8/step_batch/user\n"),
              Optional(std::string("8")));
  EXPECT_THAT(SlurmJobOf("5:cpuset:/\n4:memory:/slurm/uid_1000/job_123/step_0\n1:name=x:/a\n"),
              Optional(std::string("123")));
  EXPECT_THAT(SlurmJobOf("4:memory:/slurm_n2/uid_1000/job_9\n"), Optional(std::string("9")));
}

TEST(SlurmJobOfTest, BelievesNoGroupThatAUserCanMake) {
  for (const char* text :
       {"", "\n", "0::/\n", "0::", "x", "::", "0::/user.slice/user-1000.slice/job_77\n",
        "0::/user.slice/slurmstepd.scope/job_77\n",
        "0::/user.slice/user-1000.slice/system.slice/slurmstepd.scope/job_77/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_\n", "0::/system.slice/slurmstepd.scope/job_7x\n",
        "0::/system.slice/slurmstepd.scope/system\n", "4:memory:/docker/uid_1000/job_123\n"}) {
    EXPECT_EQ(SlurmJobOf(text), std::nullopt) << text;
  }
}

TEST(StepJobOfTest, ReadsSlurmstepdsTitle) {
  EXPECT_THAT(JobOfStepTitle("slurmstepd: [77.0]"), Optional(77u));
  EXPECT_THAT(JobOfStepTitle("slurmstepd: [123.batch]"), Optional(123u));
  EXPECT_THAT(JobOfStepTitle("slurmstepd: [9.extern]\n"), Optional(9u));
  for (const char* title :
       {"", "slurmstepd", "slurmstepd: [", "slurmstepd: [77]", "slurmstepd: [7x.0]",
        "slurmstepd: [.0]", "slurmstepd: [-1.0]", "/usr/sbin/slurmstepd infinity",
        "x slurmstepd: [77.0]", "slurmstepd: [99999999999999999999.0]"}) {
    EXPECT_EQ(JobOfStepTitle(title), std::nullopt) << title;
  }
}

TEST(StepJobOfTest, WhatDoesNotDescendFromOneHasNone) {
  EXPECT_EQ(StepJobOf(::getpid()), std::nullopt);
  EXPECT_EQ(StepJobOf(0), std::nullopt);
}

TEST(IdentifyPeerTest, TellsTheKernelsView) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd here(pair[0]), there(pair[1]);
  const auto peer = IdentifyPeer(here.get());
  ASSERT_THAT(peer, IsOk());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  EXPECT_EQ(peer->job_id, absl::StrCat("u", ::getuid(), ".s", ::getsid(0)));
  EXPECT_TRUE(peer->pidfd.valid());
  EXPECT_FALSE(HasEnded(*peer));
}

// The socket hangs up while the process is still ending: what the pidfd says then is chance.
TEST(HasEndedTest, IsTrueAsSoonAsAKilledProcessHangsUp) {
  for (int round = 0; round < 100; ++round) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd here(pair[0]);
    UniqueFd there(pair[1]);
    Peer peer;
    peer.pid = ::fork();
    ASSERT_GE(peer.pid, 0);
    if (peer.pid == 0) {
      for (;;) ::pause();
    }
    peer.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    ASSERT_TRUE(peer.pidfd.valid());
    there.Reset();
    EXPECT_FALSE(HasEnded(peer));
    ::kill(peer.pid, SIGKILL);
    pollfd hangup{.fd = here.get(), .events = POLLRDHUP, .revents = 0};
    EXPECT_EQ(::poll(&hangup, 1, 10'000), 1);
    EXPECT_TRUE(HasEnded(peer)) << round;
    ::waitpid(peer.pid, nullptr, 0);
    EXPECT_TRUE(HasEnded(peer)) << round;
  }
}

class ProbeAttachTest : public ::testing::Test {
 protected:
  void SetUp() override {
    child_ = ::fork();
    if (child_ == 0) {
      for (;;) ::pause();
    }
  }
  void TearDown() override { End(); }
  void End() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(std::exchange(child_, 0), nullptr, 0);
  }
  pid_t child_ = 0;
};

TEST_F(ProbeAttachTest, AProcessOfOnesOwnMayBeReached) {
  EXPECT_THAT(ProbeAttach(::getpid()), IsOk());
  EXPECT_THAT(ProbeAttach(child_), IsOk());
}

TEST_F(ProbeAttachTest, OneThatHasEndedMayNot) {
  const pid_t child = child_;
  End();
  EXPECT_THAT(ProbeAttach(child),
              FailsWith(absl::StatusCode::kNotFound, HasSubstr("process_vm_readv")));
}

// The code of the answer that a process gets once it has become what it shall be.
absl::StatusCode CodeFor(const std::function<void()>& become, pid_t pid) {
  const pid_t prober = ::fork();
  if (prober == 0) {
    become();
    ::_exit(static_cast<int>(ProbeAttach(pid).code()));
  }
  int status = 0;
  ::waitpid(prober, &status, 0);
  return static_cast<absl::StatusCode>(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

TEST_F(ProbeAttachTest, OneOfAnotherUserMayNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kOther = 65'534;
  EXPECT_EQ(CodeFor([] { SPCCL_CHECK(::setresuid(kOther, kOther, kOther) == 0); }, child_),
            absl::StatusCode::kPermissionDenied);
}

// As a container's seccomp profile does.
void Forbid(uint32_t call, int error_number) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  SPCCL_CHECK(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  SPCCL_CHECK(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST_F(ProbeAttachTest, NoneMayWhereTheCallIsForbidden) {
  for (const int error_number : {EPERM, ENOSYS}) {
    const auto code = CodeFor([=] { Forbid(SYS_process_vm_readv, error_number); }, child_);
    EXPECT_EQ(code, ErrnoStatus(error_number, "").code()) << error_number;
  }
}

}  // namespace
}  // namespace spccl::daemon
