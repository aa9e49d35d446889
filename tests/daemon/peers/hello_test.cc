#include "daemon/peers/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace spccl::daemon::peers {
namespace {

v1::Hello Of(uint64_t boot_id) {
  PeerNetOptions options;
  options.boot_id = boot_id;
  options.name = "node";
  options.version = "1.2.3";
  return MakeHello(options, "127.0.0.1:1");
}

absl::StatusCode CodeAfter(const std::function<void(v1::Hello*)>& change) {
  v1::Hello theirs = Of(2);
  change(&theirs);
  return CheckHello(Of(1), theirs).code();
}

TEST(HelloTest, EveryFieldIsChecked) {
  EXPECT_EQ(CodeAfter([](v1::Hello*) {}), absl::StatusCode::kOk);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_expected(1); }), absl::StatusCode::kOk);
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_magic(7); }), bad);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_boot_id(0); }), bad);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_boot_id(1); }), bad);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_nonce("short"); }), bad);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_name(std::string(257, 'x')); }), bad);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->Clear(); }), bad);
  // Whatever else is wrong: it would be said on, and logged.
  EXPECT_EQ(CodeAfter([](v1::Hello* h) {
              h->set_protocol(9);
              h->set_version(std::string(1 << 20, 'x'));
            }),
            bad);
  const auto mismatch = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_protocol(9); }), mismatch);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_expected(9); }), mismatch);
  EXPECT_EQ(CodeAfter([](v1::Hello* h) { h->set_munge(true); }),
            absl::StatusCode::kUnauthenticated);
}

TEST(HelloTest, NoncesDiffer) {
  std::set<std::string> nonces;
  for (int i = 0; i < 100; ++i) nonces.insert(Of(1).nonce());
  EXPECT_EQ(nonces.size(), 100u);
}

// A proof is good for one role and one pair of hellos: any change of any field changes it.
TEST(HelloTest, ThePayloadBindsTheRoleAndAllOfBothHellos) {
  const v1::Hello dialer = Of(1), acceptor = Of(2);
  const std::vector<std::function<void(v1::Hello*)>> changes = {
      [](v1::Hello*) {}, [](v1::Hello* h) { h->set_magic(1); },
      [](v1::Hello* h) { h->set_protocol(9); }, [](v1::Hello* h) { h->set_version("1.2.4"); },
      [](v1::Hello* h) { h->set_boot_id(3); }, [](v1::Hello* h) { h->set_name("nodf"); },
      [](v1::Hello* h) { h->set_address("127.0.0.1:2"); },
      [](v1::Hello* h) { h->set_nonce("another"); }, [](v1::Hello* h) { h->set_munge(true); },
      [](v1::Hello* h) { h->set_expected(4); },
      // A byte from one field to the next.
      [](v1::Hello* h) {
        h->set_name(h->name() + "1");
        h->set_address(h->address().substr(1));
      }};
  std::set<std::string> payloads;
  for (const auto& change : changes) {
    for (const Role role : {Role::kDialer, Role::kAcceptor}) {
      v1::Hello changed = dialer;
      change(&changed);
      payloads.insert(ProofPayload(role, changed, acceptor));
      changed = acceptor;
      change(&changed);
      payloads.insert(ProofPayload(role, dialer, changed));
    }
  }
  EXPECT_EQ(payloads.size(), changes.size() * 4 - 2);  // the unchanged one comes twice for a role
  EXPECT_EQ(payloads.count(ProofPayload(Role::kDialer, acceptor, dialer)), 0u);
}

}  // namespace
}  // namespace spccl::daemon::peers
