#include "daemon/peers/peer_net.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "daemon/peers/acceptor.h"
#include "tests/daemon/peers/node.h"
#include "tests/daemon/peers/stranger.h"

namespace spccl::daemon::peers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<uint32_t> UpTo(uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

bool AwaitMessages(Node& node, PeerId id, size_t count) {
  return node.Await(id, [count](const Node::Peer& peer) { return peer.messages.size() >= count; });
}

size_t OpenDescriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST(PeerNetTest, MessagesArriveInOrderBothWays) {
  Node a(OptionsOf(1)), b(OptionsOf(2));
  ASSERT_TRUE(a.status().ok()) << a.status();
  ASSERT_TRUE(b.status().ok()) << b.status();
  const PeerId to_b = a.Connect(b);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(a->Send(to_b, Numbered(i)).ok());
  ASSERT_TRUE(a.AwaitUp(to_b));
  EXPECT_EQ(a.Get(to_b).info.boot_id, 2u);
  EXPECT_EQ(a.Get(to_b).info.name, "node2");
  EXPECT_EQ(a.Get(to_b).info.version, "1.2.3");
  EXPECT_EQ(a.Get(to_b).info.address, b->address());
  EXPECT_EQ(a.Get(to_b).info.proof, "none");
  for (uint32_t i = 100; i < 200; ++i) ASSERT_TRUE(a->Send(to_b, Numbered(i)).ok());
  const PeerId to_a = b.AwaitPeer(1);
  for (uint32_t i = 0; i < 200; ++i) ASSERT_TRUE(b->Send(to_a, Numbered(i)).ok());
  ASSERT_TRUE(AwaitMessages(b, to_a, 200));
  ASSERT_TRUE(AwaitMessages(a, to_b, 200));
  EXPECT_EQ(NumbersOf(b.Get(to_a)), UpTo(200));
  EXPECT_EQ(NumbersOf(a.Get(to_b)), UpTo(200));
}

// Else a short cut of the network would be noticed to be over too late.
TEST(PeerNetTest, BothEndsOfAConnectionUseLinearTimeouts) {
  Node a(OptionsOf(1)), b(OptionsOf(2));
  ASSERT_TRUE(a.AwaitUp(a.Connect(b)));
  int connected = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage address = {};
    socklen_t bytes = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) continue;
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) continue;
    int on = 0;
    socklen_t size = sizeof on;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, &size), 0);
    EXPECT_EQ(on, 1);
    ++connected;
  }
  EXPECT_EQ(connected, 2);
}

TEST(PeerNetTest, ThereIsOneStreamForEachPairHoweverOftenAsked) {
  Node a(OptionsOf(1)), b(OptionsOf(2));
  const PeerId to_b = a.Connect(b);
  EXPECT_EQ(a.Connect(b), to_b);
  ASSERT_TRUE(a.AwaitUp(to_b));
  EXPECT_EQ(a->Find(2), to_b);
  const PeerId to_a = b.AwaitPeer(1);
  EXPECT_EQ(b.Connect(a), to_a);
  EXPECT_EQ(b->Find(1), to_a);
  EXPECT_EQ(b->Find(7), std::nullopt);
}

// Whoever dials first, slower, or at the same time: one stream stands, and no message is lost.
TEST(PeerNetTest, BothDialAtOnceAndNothingIsLost) {
  for (uint32_t round = 0; round < 40; ++round) {
    Node a(OptionsOf(10 + round % 2)), b(OptionsOf(11 - round % 2));
    PeerId to_b = 0, to_a = 0;
    std::thread other([&] {
      to_a = b.Connect(a);
      for (uint32_t i = 0; i < 50; ++i) EXPECT_TRUE(b->Send(to_a, Numbered(i)).ok());
    });
    to_b = a.Connect(b);
    for (uint32_t i = 0; i < 50; ++i) EXPECT_TRUE(a->Send(to_b, Numbered(i)).ok());
    other.join();
    ASSERT_TRUE(AwaitMessages(a, to_b, 50)) << "round " << round << " " << a.Get(to_b).down;
    ASSERT_TRUE(AwaitMessages(b, to_a, 50)) << "round " << round << " " << b.Get(to_a).down;
    EXPECT_EQ(NumbersOf(a.Get(to_b)), UpTo(50));
    EXPECT_EQ(NumbersOf(b.Get(to_a)), UpTo(50));
    EXPECT_EQ(a.all().size(), 1u);
    EXPECT_EQ(b.all().size(), 1u);
  }
}

TEST(PeerNetTest, NobodyThereIsAnError) {
  Node a(OptionsOf(1));
  std::string address;
  {
    Node gone(OptionsOf(2));
    address = gone->address();
  }
  const PeerId id = a.Connect(address, 2);
  EXPECT_TRUE(a->Send(id, Numbered(1)).ok() || a.Get(id).downs == 1);
  const absl::Status down = a.AwaitDown(id);
  EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable) << down;
  EXPECT_THAT(std::string(down.message()), AllOf(HasSubstr(address), HasSubstr("refused")));
  EXPECT_EQ(a->Find(2), std::nullopt);
  EXPECT_EQ(a->Send(id, Numbered(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_NE(a.Connect(address, 2), id);
}

TEST(PeerNetTest, AnotherBootIdThanMeantIsAnError) {
  Node a(OptionsOf(1)), b(OptionsOf(2));
  const absl::Status down = a.AwaitDown(a.Connect(b->address(), 77));
  EXPECT_EQ(down.code(), absl::StatusCode::kFailedPrecondition) << down;
  EXPECT_THAT(std::string(down.message()),
              AllOf(HasSubstr("started anew"), HasSubstr("000000000000004d")));
}

TEST(PeerNetTest, OtherProtocolsNameBothVersions) {
  PeerNetOptions newer = OptionsOf(2);
  newer.protocol = 9;
  newer.version = "4.5.6";
  Node a(OptionsOf(1)), b(newer);
  for (const absl::Status& down : {a.AwaitDown(a.Connect(b)), b.AwaitDown(b.Connect(a))}) {
    EXPECT_EQ(down.code(), absl::StatusCode::kFailedPrecondition) << down;
    EXPECT_THAT(std::string(down.message()),
                AllOf(HasSubstr("1.2.3"), HasSubstr("4.5.6"), HasSubstr("node1"),
                      HasSubstr("node2"), HasSubstr("protocol"), HasSubstr("9")));
  }
}

TEST(PeerNetTest, AStoppedPeerIsKnownByItsName) {
  Node a(OptionsOf(1));
  auto b = std::make_unique<Node>(OptionsOf(2));
  const PeerId id = a.Connect(*b);
  ASSERT_TRUE(a.AwaitUp(id));
  b.reset();
  const absl::Status down = a.AwaitDown(id);
  EXPECT_EQ(down.code(), absl::StatusCode::kUnavailable) << down;
  EXPECT_THAT(std::string(down.message()), AllOf(HasSubstr("node2"), HasSubstr("has stopped")));
}

TEST(PeerNetTest, AStartedAnewPeerIsAnotherOne) {
  Node a(OptionsOf(1));
  auto b = std::make_unique<Node>(OptionsOf(2));
  const PeerId first = a.Connect(*b);
  ASSERT_TRUE(a.AwaitUp(first));
  b.reset();
  EXPECT_FALSE(a.AwaitDown(first).ok());
  Node c(OptionsOf(3));
  const PeerId second = a.Connect(c);
  EXPECT_NE(first, second);
  EXPECT_TRUE(a.AwaitUp(second));
}

TEST(PeerNetTest, UnusedStreamsEndOnBothSidesAndComeAgain) {
  for (const uint64_t other : {2, 4}) {  // either side's boot id is the smaller
    PeerNetOptions one = OptionsOf(3), two = OptionsOf(other);
    one.idle_limit_ns = two.idle_limit_ns = 50'000'000;
    Node a(one), b(two);
    const PeerId to_b = a.Connect(b);
    const PeerId to_a = b.AwaitPeer(3);
    ASSERT_TRUE(b->AddReference(to_a).ok());
    a->Release(to_b);
    b->Release(to_a);
    EXPECT_TRUE(a.AwaitDown(to_b).ok());
    EXPECT_TRUE(b.AwaitDown(to_a).ok());
    EXPECT_EQ(b->AddReference(to_a).code(), absl::StatusCode::kNotFound);
    const PeerId again = a.Connect(b);
    EXPECT_NE(again, to_b);
    EXPECT_TRUE(a.AwaitUp(again)) << a.Get(again).down;
  }
}

// Uses and releases at random on both sides, with an idle limit so short that streams end all the
// time: what is sent while in use arrives, once, in order.
TEST(PeerNetTest, NothingIsLostWhileStreamsEndForLackOfUse) {
  PeerNetOptions one = OptionsOf(1), two = OptionsOf(2);
  one.idle_limit_ns = two.idle_limit_ns = 1'000'000;
  Node a(one), b(two);
  std::mt19937 random(7);
  uint32_t sent = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Node& from = random() % 2 == 0 ? a : b;
    Node& to = &from == &a ? b : a;
    const PeerId id = from.Connect(to);
    const uint32_t count = 1 + random() % 3;
    for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(from->Send(id, Numbered(sent++)).ok());
    const auto arrived = [last = sent - 1](const std::map<PeerId, Node::Peer>& peers) {
      return std::any_of(peers.begin(), peers.end(), [last](const auto& entry) {
        return !entry.second.messages.empty() && NumbersOf(entry.second).back() == last;
      });
    };
    ASSERT_TRUE(to.AwaitAll(arrived)) << from.Get(id).down;
    from->Release(id);
    // Sometimes the stream ends before the next use, mostly it is about to.
    if (random() % 4 == 0) {
      EXPECT_TRUE(from.AwaitDown(id).ok());
    }
  }
  size_t total = 0;
  for (Node* node : {&a, &b}) {
    for (const auto& [id, peer] : node->all()) {
      total += peer.messages.size();
      EXPECT_TRUE(peer.downs == 0 || peer.down.ok()) << peer.down;
    }
  }
  EXPECT_EQ(total, sent);
}

TEST(PeerNetTest, ManyConnectionsLeakNoDescriptors) {
  Node a(OptionsOf(1));
  size_t before = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    if (i == 10) before = OpenDescriptors();
    Node b(OptionsOf(100 + i));
    const PeerId id = a.Connect(b);
    ASSERT_TRUE(a.AwaitUp(id)) << a.Get(id).down;
    ASSERT_TRUE(a->Send(id, Numbered(1)).ok());
    b.Stop();
    EXPECT_FALSE(a.AwaitDown(id).ok());
  }
  EXPECT_LE(OpenDescriptors(), before + 8);
}

TEST(PeerNetTest, AStrangerThatSaysNothingIsCutOffAndAPeerIsNot) {
  PeerNetOptions options = OptionsOf(1);
  options.connect_limit_ns = 3'000'000'000;  // in which b must be known
  Node a(options), b(OptionsOf(2));
  const PeerId id = b.Connect(a);
  ASSERT_TRUE(b.AwaitUp(id));
  const UniqueFd stranger = ConnectStranger(a->address());
  EXPECT_TRUE(IsCutOff(stranger));
  ASSERT_TRUE(b->Send(id, Numbered(1)).ok());
  EXPECT_TRUE(AwaitMessages(a, a.AwaitPeer(2), 1));
  EXPECT_EQ(b.Get(id).downs, 0);
}

bool HasIpv6() {
  return Acceptor::Listen({.host = "::1", .port = 0}, /*hello_limit_ns=*/1).ok();
}

// Listens on that address of the machine.
void OfMoreStrangersThanAreHeldTheOldestGoes(const std::string& listen) {
  PeerNetOptions options = OptionsOf(1);
  options.listen = listen;
  options.connect_limit_ns = 300'000'000'000;
  Node a(options), b(OptionsOf(2));
  const PeerId id = b.Connect(a);
  ASSERT_TRUE(b.AwaitUp(id));
  std::vector<UniqueFd> strangers;
  for (size_t i = 0; i < Acceptor::kMostStrangers + 3; ++i) {
    strangers.push_back(ConnectStranger(a->address()));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(IsCutOff(strangers[i])) << i;
  EXPECT_FALSE(IsCutOff(strangers[3], 100));
  EXPECT_FALSE(IsCutOff(strangers.back(), 100));
  ASSERT_TRUE(b->Send(id, Numbered(1)).ok());
  EXPECT_TRUE(AwaitMessages(a, a.AwaitPeer(2), 1));
  // One that comes now is a stranger for a moment only.
  Node c(OptionsOf(3));
  EXPECT_TRUE(c.AwaitUp(c.Connect(a)));
}

TEST(PeerNetTest, OfMoreStrangersThanAreHeldTheOldestGoes) {
  OfMoreStrangersThanAreHeldTheOldestGoes("127.0.0.1:0");
}

TEST(PeerNetTest, OfMoreStrangersThanAreHeldTheOldestGoesWithIpv6) {
  if (!HasIpv6()) GTEST_SKIP() << "this machine has no ::1";
  OfMoreStrangersThanAreHeldTheOldestGoes("[::1]:0");
}

TEST(PeerNetTest, WithoutProofOnlyLoopback) {
  PeerNetOptions open = OptionsOf(1);
  open.listen = "0.0.0.0:0";
  Node refused(open);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("expected a loopback address")));
  Node a(OptionsOf(1));
  EXPECT_EQ(a->Connect("192.0.2.1:7", 2).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(a->Connect("nonsense", 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a->Connect("127.0.0.1:7", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(a->Connect("127.0.0.1:7", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PeerNetTest, ATakenPortIsAnError) {
  Node a(OptionsOf(1));
  PeerNetOptions same = OptionsOf(2);
  same.listen = a->address();
  const Node b(same);
  EXPECT_THAT(std::string(b.status().message()),
              AllOf(HasSubstr(same.listen), HasSubstr("in use")));
}

TEST(PeerNetTest, TheAdvertisedAddressIsTold) {
  PeerNetOptions options = OptionsOf(1);
  options.advertise = "localhost";
  Node a(options);
  EXPECT_THAT(a->address(), ::testing::MatchesRegex("localhost:[0-9]+"));
  Node b(OptionsOf(2));
  EXPECT_TRUE(b.AwaitUp(b.Connect(a)));
  options.advertise = "front:99";
  Node c(options);
  EXPECT_EQ(c->address(), "front:99");
}

TEST(PeerNetTest, APeerThatTakesNothingGoesDown) {
  std::mutex gate;  // outlives the node that waits for it
  Node a(OptionsOf(1)), b(OptionsOf(2));
  std::unique_lock shut(gate);
  b.echo = [&gate](PeerId, const v1::PeerMessage&) { const std::lock_guard wait(gate); };
  const PeerId id = a.Connect(b);
  ASSERT_TRUE(a.AwaitUp(id));
  v1::PeerMessage big = Numbered(0);
  big.mutable_join()->set_unique_id(std::string(1 << 20, 'x'));
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = a->Send(id, big);
  EXPECT_FALSE(status.ok());
  const absl::Status down = a.AwaitDown(id);
  EXPECT_FALSE(down.ok());
  EXPECT_THAT(std::string(down.message()), HasSubstr("node2"));
  shut.unlock();
}

}  // namespace
}  // namespace spccl::daemon::peers
