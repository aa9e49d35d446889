#include "daemon/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/descriptor_limit.h"
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

TEST(IdentifyPeerTest, SaysThatThereAreNoDescriptorsToReadItsGroup) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd here(pair[0]), there(pair[1]);
  const DescriptorLimit limit(64);
  std::vector<UniqueFd> taken;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.emplace_back(fd);
  taken.pop_back();  // the pidfd's
  EXPECT_THAT(IdentifyPeer(here.get()),
              FailsWith(absl::StatusCode::kResourceExhausted, HasSubstr("cgroup")));
  taken.pop_back();
  EXPECT_THAT(IdentifyPeer(here.get()), IsOk());
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

}  // namespace
}  // namespace spccl::daemon
