#include "daemon/peers/munge.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/daemon/peers/node.h"
#include "tests/daemon/peers/private_munged.h"

namespace spccl::daemon::peers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

TEST(MungeTest, ACredentialIsGoodOnceForItsPayload) {
  const PrivateMunged munged('k');
  const auto munge = Munge::Create(munged.socket());
  ASSERT_TRUE(munge.ok()) << munge.status();
  const auto credential = (*munge)->Encode("payload");
  ASSERT_TRUE(credential.ok()) << credential.status();
  EXPECT_TRUE((*munge)->Verify(*credential, "payload").ok());
  const absl::Status replayed = (*munge)->Verify(*credential, "payload");
  EXPECT_EQ(replayed.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(replayed.message()), HasSubstr("Replayed"));
  const absl::Status other = (*munge)->Verify(*(*munge)->Encode("payload"), "another");
  EXPECT_EQ(other.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(other.message()), HasSubstr("for another connection"));
  EXPECT_EQ((*munge)->Verify("nonsense", "payload").code(), absl::StatusCode::kUnauthenticated);
}

TEST(MungeTest, AnotherUsersCredentialIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const PrivateMunged munged('k');
  const std::string path = munged.socket() + ".credential";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string made;
    const int out = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    if (::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(1);
    const auto munge = Munge::Create(munged.socket());
    if (munge.ok()) made = (*munge)->Encode("payload").value_or("");
    ::_exit(::write(out, made.data(), made.size()) > 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ifstream file(path);
  const std::string credential{std::istreambuf_iterator<char>(file), {}};
  const auto munge = Munge::Create(munged.socket());
  const absl::Status refused = (*munge)->Verify(credential, "payload");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("of uid 65534, expected 0"));
}

PeerNetOptions WithMunge(uint64_t boot_id, const PrivateMunged& munged) {
  PeerNetOptions options = OptionsOf(boot_id);
  options.munge = true;
  options.munge_socket = munged.socket();
  return options;
}

TEST(MungeTest, NodesOfOneRealmMeet) {
  const PrivateMunged munged('k');
  PeerNetOptions options = WithMunge(1, munged);
  options.listen = "0.0.0.0:0";  // with proof, beyond loopback
  options.advertise = "127.0.0.1";
  Node a(options), b(WithMunge(2, munged)), c(WithMunge(3, munged));
  ASSERT_TRUE(a.status().ok()) << a.status();
  const PeerId to_b = a.Connect(b), to_c = a.Connect(c);
  ASSERT_TRUE(a.AwaitUp(to_b)) << a.Get(to_b).down;
  ASSERT_TRUE(a.AwaitUp(to_c)) << a.Get(to_c).down;
  EXPECT_EQ(a.Get(to_b).info.proof, "munge");
  const PeerId from_c = c.Connect(b);
  EXPECT_TRUE(c.AwaitUp(from_c)) << c.Get(from_c).down;
}

TEST(MungeTest, BothDialAtOnceAndNothingIsLost) {
  const PrivateMunged munged('k');
  for (uint64_t round = 0; round < 10; ++round) {
    Node a(WithMunge(10 + round % 2, munged)), b(WithMunge(11 - round % 2, munged));
    const PeerId to_b = a.Connect(b), to_a = b.Connect(a);
    ASSERT_TRUE(a->Send(to_b, Numbered(1)).ok());
    ASSERT_TRUE(b->Send(to_a, Numbered(2)).ok());
    const auto one = [](const Node::Peer& peer) { return peer.messages.size() == 1; };
    ASSERT_TRUE(a.Await(to_b, one)) << a.Get(to_b).down;
    ASSERT_TRUE(b.Await(to_a, one)) << b.Get(to_a).down;
    EXPECT_EQ(a.all().size(), 1u);
    EXPECT_EQ(b.all().size(), 1u);
  }
}

TEST(MungeTest, AnotherRealmIsRefusedOnWhicheverSideDials) {
  const PrivateMunged ours('k'), theirs('x');
  Node a(WithMunge(1, ours)), b(WithMunge(2, theirs));
  for (const absl::Status& down : {a.AwaitDown(a.Connect(b)), b.AwaitDown(b.Connect(a))}) {
    EXPECT_EQ(down.code(), absl::StatusCode::kUnauthenticated) << down;
    EXPECT_THAT(std::string(down.message()), HasSubstr("MUNGE credential is not accepted"));
  }
}

TEST(MungeTest, WithAndWithoutDoNotMeet) {
  const PrivateMunged munged('k');
  Node a(WithMunge(1, munged)), b(OptionsOf(2));
  for (const absl::Status& down : {a.AwaitDown(a.Connect(b)), b.AwaitDown(b.Connect(a))}) {
    EXPECT_EQ(down.code(), absl::StatusCode::kUnauthenticated) << down;
    EXPECT_THAT(std::string(down.message()),
                AllOf(HasSubstr("peers.munge is"), HasSubstr("node1"), HasSubstr("node2")));
  }
}

TEST(MungeTest, NoMungedIsAnError) {
  PeerNetOptions options = OptionsOf(1);
  options.munge = true;
  options.munge_socket = "/nonexistent/socket";
  Node a(options);
  options.boot_id = 3;
  Node c(options);
  const absl::Status down = a.AwaitDown(a.Connect(c));
  EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable) << down;
  EXPECT_THAT(std::string(down.message()), HasSubstr("MUNGE makes no credential"));
}

}  // namespace
}  // namespace spccl::daemon::peers
