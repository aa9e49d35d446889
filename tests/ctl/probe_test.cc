#include "ctl/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

TEST(ProbeTest, ThisKernelHasWhatIsNeeded) {
  const KernelFacts facts = TryKernel();
  EXPECT_EQ(facts.memfd_seals, "");
  EXPECT_EQ(facts.pidfd, "");
  EXPECT_EQ(facts.reads_own, "");
}

TEST(ProbeTest, WhoListensIsTheKernelsWord) {
  const spccl::testing::TempFolder folder;
  const std::string path = folder.path() + "/s";
  EXPECT_TRUE(absl::IsUnavailable(ListenerOf(path, SOCK_STREAM).status()));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(absl::IsUnavailable(ListenerOf(path, SOCK_STREAM).status()));  // bound, no more
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  const auto listener = ListenerOf(path, SOCK_STREAM);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(listener->pid, ::getpid());
  EXPECT_EQ(listener->uid, ::geteuid());
}

TEST(ProbeTest, TheClockAnswers) {
  EXPECT_EQ(AskClock().error, 0);
}

}  // namespace
}  // namespace spccl::ctl
