// What others learn of a daemon that is killed or frozen, and how soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/clock.h"
#include "tests/daemon/peers/node.h"

namespace spccl::daemon::peers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kKnownWithinNs = 3'000'000'000;  // the promise
constexpr uint64_t kChild = 50;

class Child {
 public:
  explicit Child(uint64_t boot_id, int heartbeat_ms = 500) {
    int to[2], from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      for (const int fd : {to[0], to[1], from[0], from[1]}) ::close(fd);
      ::execl(SPCCL_PEER_MAIN, SPCCL_PEER_MAIN, std::to_string(boot_id).c_str(), "127.0.0.1:0",
              std::to_string(heartbeat_ms).c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    stdin_ = to[1];
    char byte;
    while (::read(from[0], &byte, 1) == 1 && byte != '\n') address_ += byte;
    ::close(from[0]);
    EXPECT_FALSE(address_.empty());
  }
  ~Child() {
    ::close(stdin_);
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) const { ::kill(pid_, signal); }
  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  std::string address_;
};

// Whichever side dialed, in this process by its boot id the one that decides or not.
class PeerNetFaultTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  // Sends and hears back.
  void Talk(Node& node, PeerId id) {
    const size_t before = node.Get(id).messages.size();
    ASSERT_TRUE(node->Send(id, Numbered(1)).ok());
    ASSERT_TRUE(node.Await(id, [before](const Node::Peer& peer) {
      return peer.messages.size() > before;
    })) << node.Get(id).down;
  }
};
INSTANTIATE_TEST_SUITE_P(BootId, PeerNetFaultTest, ::testing::Values(kChild - 1, kChild + 1));

TEST_P(PeerNetFaultTest, AKilledPeerIsKnown) {
  Node a(OptionsOf(GetParam()));
  const Child child(kChild);
  const PeerId id = a.Connect(child.address(), kChild);
  Talk(a, id);
  child.Signal(SIGKILL);
  const int64_t killed_ns = MonotonicNanos();
  const absl::Status down = a.AwaitDown(id);
  EXPECT_LT(MonotonicNanos() - killed_ns, kKnownWithinNs);
  EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable) << down;
  EXPECT_THAT(std::string(down.message()), AllOf(HasSubstr("child"), HasSubstr(child.address())));
}

TEST_P(PeerNetFaultTest, AFrozenPeerIsKnown) {
  Node a(OptionsOf(GetParam()));
  const Child child(kChild);
  const PeerId id = a.Connect(child.address(), kChild);
  Talk(a, id);
  child.Signal(SIGSTOP);
  const int64_t frozen_ns = MonotonicNanos();
  const absl::Status down = a.AwaitDown(id);
  EXPECT_LT(MonotonicNanos() - frozen_ns, kKnownWithinNs);
  EXPECT_EQ(down.code(), absl::StatusCode::kDeadlineExceeded) << down;
  EXPECT_THAT(std::string(down.message()), AllOf(HasSubstr("child"), HasSubstr("frozen")));
  // It comes back to life, and may be met again.
  child.Signal(SIGCONT);
  Talk(a, a.Connect(child.address(), kChild));
}

TEST_P(PeerNetFaultTest, ABriefFreezeIsSurvived) {
  Node a(OptionsOf(GetParam()));
  const Child child(kChild);
  const PeerId id = a.Connect(child.address(), kChild);
  Talk(a, id);
  child.Signal(SIGSTOP);
  ASSERT_TRUE(a->Send(id, Numbered(2)).ok());
  // Longer than a heartbeat, shorter than the limit.
  EXPECT_FALSE(
      a.AwaitFor(id, 1'000'000'000, [](const Node::Peer& peer) { return peer.downs > 0; }));
  child.Signal(SIGCONT);
  EXPECT_TRUE(a.Await(id, [](const Node::Peer& peer) { return peer.messages.size() == 2; }));
  EXPECT_EQ(a.Get(id).downs, 0);
}

TEST_P(PeerNetFaultTest, AFrozenDaemonThatAnswersNoDialIsKnown) {
  Node a(OptionsOf(GetParam()));
  const Child child(kChild);
  child.Signal(SIGSTOP);
  const absl::Status down = a.AwaitDown(a.Connect(child.address(), kChild));
  EXPECT_EQ(down.code(), absl::StatusCode::kDeadlineExceeded) << down;
  EXPECT_THAT(std::string(down.message()), HasSubstr(child.address()));
}

}  // namespace
}  // namespace spccl::daemon::peers
