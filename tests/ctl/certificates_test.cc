#include "ctl/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace spccl::ctl {
namespace {

constexpr Validity kAlways{.from = 0, .to = 4'000'000'000};

TEST(CertificatesTest, AnAuthorityReadsBackAndIssues) {
  const absl::StatusOr<Authority> made = Authority::Create("test", kAlways);
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<Authority> read = Authority::Parse(made->pem());
  ASSERT_TRUE(read.ok()) << read.status();
  const auto node = read->Issue({"node1", "10.0.0.1", "fe80::1"}, kAlways);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_THAT(node->certificate, ::testing::StartsWith("-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(node->key, ::testing::StartsWith("-----BEGIN PRIVATE KEY-----"));
}

TEST(CertificatesTest, ANodesCertificateIsNoAuthority) {
  const absl::StatusOr<Authority> made = Authority::Create("test", kAlways);
  const auto node = made->Issue({"node1"}, kAlways);
  ASSERT_TRUE(node.ok());
  EXPECT_FALSE(Authority::Parse(*node).ok());
  EXPECT_FALSE(Authority::Parse({.certificate = made->pem().certificate, .key = node->key}).ok());
  EXPECT_FALSE(Authority::Parse({.certificate = "x", .key = "y"}).ok());
}

TEST(CertificatesTest, NamesAreChecked) {
  const absl::StatusOr<Authority> made = Authority::Create("test", kAlways);
  for (const std::string name : {"", "a b", "a/b", "../a", "-a", "a,DNS:b", "10.0.0.1/8"}) {
    EXPECT_EQ(made->Issue({"fine", name}, kAlways).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(made->Issue({}, kAlways).ok());
}

TEST(CertificatesTest, NoTwoAreAlike) {
  const absl::StatusOr<Authority> made = Authority::Create("test", kAlways);
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    const auto node = made->Issue({"node1"}, kAlways);
    seen.insert(node->key);
    seen.insert(node->certificate);
  }
  EXPECT_EQ(seen.size(), 40u);
}

}  // namespace
}  // namespace spccl::ctl
