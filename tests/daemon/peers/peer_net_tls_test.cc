// Mutual TLS: who is let in, and what the others are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "ctl/certificates.h"
#include "daemon/peers/tls.h"
#include "tests/daemon/peers/node.h"
#include "tests/daemon/peers/stranger.h"

namespace spccl::daemon::peers {
namespace {

using ctl::Authority;
using ctl::Validity;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kDay = 24 * 3600;

class PeerNetTlsTest : public ::testing::Test {
 protected:
  PeerNetTlsTest()
      : now_(::time(nullptr)),
        valid_{.from = now_ - kDay, .to = now_ + kDay},
        authority_(*Authority::Create("ours", valid_)),
        foreign_(*Authority::Create("theirs", valid_)) {
    char pattern[] = "/tmp/spccl_tls_XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~PeerNetTlsTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return path;
  }
  // A node that trusts `trusted` and has a certificate of `issuer`.
  PeerNetOptions Options(uint64_t boot_id, const Authority& issuer, const Authority& trusted,
                         const std::vector<std::string>& names, Validity validity) {
    PeerNetOptions options = OptionsOf(boot_id);
    const std::string stem = std::to_string(boot_id);
    const ctl::CertificateAndKey made = *issuer.Issue(names, validity);
    options.tls = {.ca = Write(stem + ".ca", trusted.pem().certificate),
                   .certificate = Write(stem + ".pem", made.certificate),
                   .key = Write(stem + ".key", made.key)};
    return options;
  }
  PeerNetOptions Good(uint64_t boot_id) {
    return Options(boot_id, authority_, authority_, {options_name_, "127.0.0.1"}, valid_);
  }

  const std::string options_name_ = "localhost";
  const int64_t now_;
  const Validity valid_;
  const Authority authority_, foreign_;
  std::string folder_;
};

TEST_F(PeerNetTlsTest, NodesOfOneAuthorityMeet) {
  PeerNetOptions options = Good(1);
  options.listen = "0.0.0.0:0";  // with proof, beyond loopback
  options.advertise = "localhost";
  Node a(options), b(Good(2));
  ASSERT_TRUE(a.status().ok()) << a.status();
  const PeerId to_b = a.Connect(b);
  ASSERT_TRUE(a.AwaitUp(to_b)) << a.Get(to_b).down;
  EXPECT_EQ(a.Get(to_b).info.proof, "tls");
  ASSERT_TRUE(a->Send(to_b, Numbered(5)).ok());
  const PeerId to_a = b.AwaitPeer(1);
  EXPECT_TRUE(b.Await(to_a, [](const Node::Peer& peer) { return peer.messages.size() == 1; }));
  Node c(Good(3));
  const PeerId by_name = c.Connect(a);
  EXPECT_TRUE(c.AwaitUp(by_name)) << c.Get(by_name).down;
}

TEST_F(PeerNetTlsTest, AKeyThatOthersMayReadIsWarnedOf) {
  const PeerNetOptions options = Good(1);
  for (const unsigned mode : {0600u, 0640u, 0604u}) {
    std::filesystem::permissions(options.tls.key, std::filesystem::perms(mode));
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(TlsIdentity::Load(options.tls).ok());
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("chmod 0600 " + options.tls.key) != std::string::npos, mode != 0600)
        << told;
  }
}

// In the middle of TLS's own greeting.
TEST_F(PeerNetTlsTest, AStrangerThatSaysNothingIsCutOff) {
  PeerNetOptions options = Good(1);
  options.connect_limit_ns = 300'000'000;
  Node a(options);
  EXPECT_TRUE(IsCutOff(ConnectStranger(a->address())));
}

TEST_F(PeerNetTlsTest, ForeignAuthoritiesAreNamedOnWhicheverSideDials) {
  Node a(Good(1)), b(Options(2, foreign_, foreign_, {"127.0.0.1"}, valid_));
  ASSERT_TRUE(b.status().ok()) << b.status();
  for (const absl::Status& down : {a.AwaitDown(a.Connect(b)), b.AwaitDown(b.Connect(a))}) {
    EXPECT_EQ(down.code(), absl::StatusCode::kUnauthenticated) << down;
    EXPECT_THAT(std::string(down.message()),
                AllOf(HasSubstr("127.0.0.1"), HasSubstr("certificate is not accepted"),
                      HasSubstr("another authority")));
  }
}

// The dialer trusts the acceptor, but not the other way round.
TEST_F(PeerNetTlsTest, ARefusedDialerIsToldThatItIsItsCertificate) {
  PeerNetOptions both = Options(2, foreign_, foreign_, {"127.0.0.1"}, valid_);
  Write("2.ca", foreign_.pem().certificate + authority_.pem().certificate);
  Node a(Good(1)), b(both);
  const absl::Status down = b.AwaitDown(b.Connect(a));
  EXPECT_EQ(down.code(), absl::StatusCode::kUnauthenticated) << down;
  EXPECT_THAT(std::string(down.message()), HasSubstr("does not accept this daemon's certificate"));
}

TEST_F(PeerNetTlsTest, ACertificateForAnotherHostIsRefused) {
  Node a(Good(1)), b(Options(2, authority_, authority_, {"elsewhere"}, valid_));
  const absl::Status at_dialer = a.AwaitDown(a.Connect(b));
  EXPECT_EQ(at_dialer.code(), absl::StatusCode::kUnauthenticated) << at_dialer;
  EXPECT_THAT(std::string(at_dialer.message()), HasSubstr("IP address mismatch"));
  const absl::Status at_acceptor = b.AwaitDown(b.Connect(a));
  EXPECT_EQ(at_acceptor.code(), absl::StatusCode::kUnauthenticated) << at_acceptor;
  EXPECT_THAT(std::string(at_acceptor.message()),
              AllOf(HasSubstr("is for elsewhere and not for 127.0.0.1"), HasSubstr("node2")));
}

TEST_F(PeerNetTlsTest, AnExpiredCertificateStopsTheDaemonThatHasIt) {
  const Validity past{.from = now_ - 2 * kDay, .to = now_ - kDay};
  const Node a(Options(1, authority_, authority_, {"127.0.0.1"}, past));
  EXPECT_EQ(a.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(a.status().message()),
              AllOf(HasSubstr(folder_ + "/1.pem"), HasSubstr("has expired on 20")));
}

TEST_F(PeerNetTlsTest, ACertificateThatExpiresIsRefusedByBothSides) {
  const Validity short_lived{.from = now_ - kDay, .to = ::time(nullptr) + 2};
  Node a(Good(1)), b(Options(2, authority_, authority_, {"127.0.0.1"}, short_lived));
  ASSERT_TRUE(b.status().ok()) << b.status();
  while (::time(nullptr) < short_lived.to + 1) {  // OpenSSL takes the last second too
    ::timespec rest{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::nanosleep(&rest, nullptr);
  }
  const absl::Status dialing = b.AwaitDown(b.Connect(a));
  EXPECT_THAT(std::string(dialing.message()), HasSubstr("this daemon's certificate has expired"));
  const absl::Status dialed = a.AwaitDown(a.Connect(b));
  EXPECT_EQ(dialed.code(), absl::StatusCode::kUnauthenticated) << dialed;
  EXPECT_THAT(std::string(dialed.message()), HasSubstr("certificate has expired"));
}

TEST_F(PeerNetTlsTest, WithAndWithoutTlsDoNotMeet) {
  Node a(Good(1)), b(OptionsOf(2));
  const absl::Status to_plain = a.AwaitDown(a.Connect(b));
  EXPECT_EQ(to_plain.code(), absl::StatusCode::kUnauthenticated) << to_plain;
  EXPECT_THAT(std::string(to_plain.message()), HasSubstr("no TLS there"));
  EXPECT_FALSE(b.AwaitDown(b.Connect(a)).ok());
}

TEST_F(PeerNetTlsTest, WrongFilesAreNamedAtTheStart) {
  const PeerNetOptions good = Good(1);
  const PeerNetOptions other = Good(2);
  const auto message = [&](auto change) {
    PeerNetOptions options = good;
    change(&options.tls);
    return std::string(Node(options).status().message());
  };
  EXPECT_THAT(message([&](TlsFiles* tls) { tls->key = other.tls.key; }),
              AllOf(HasSubstr(other.tls.key), HasSubstr("not the key of " + good.tls.certificate)));
  EXPECT_THAT(message([&](TlsFiles* tls) { tls->key = tls->certificate; }),
              HasSubstr(good.tls.certificate + ": found no private key"));
  EXPECT_THAT(message([&](TlsFiles* tls) { tls->certificate = tls->key; }),
              HasSubstr("found no certificate"));
  EXPECT_THAT(message([&](TlsFiles* tls) { tls->ca = folder_ + "/none"; }), HasSubstr("/none"));
  EXPECT_THAT(message([&](TlsFiles* tls) { tls->ca = Write("f", foreign_.pem().certificate); }),
              AllOf(HasSubstr("not valid under " + folder_ + "/f"), HasSubstr("issuer")));
}

}  // namespace
}  // namespace spccl::daemon::peers
