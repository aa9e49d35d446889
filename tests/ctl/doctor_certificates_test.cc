// The checks of the TLS files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ctl/certificates.h"
#include "ctl/doctor.h"
#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kADay = 24 * 3600, kToday = 20'000 * kADay;

class DoctorCertificatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    authority_ = std::make_unique<Authority>(
        Authority::Create("test", {.from = kToday - kADay, .to = kToday + 900 * kADay}).value());
    Use(kToday - kADay, kToday + 100 * kADay);
  }
  // Files of a certificate with that validity.
  void Use(int64_t from, int64_t to) {
    pem_ = authority_->Issue({"node1"}, {.from = from, .to = to}).value();
    config_.fields = {{"peers.tls_ca", fake_.Put("/ca.pem", authority_->pem().certificate)},
                      {"peers.tls_cert", fake_.Put("/node.pem", pem_.certificate)},
                      {"peers.tls_key", fake_.Put("/node.key", pem_.key)}};
    KeyMode(0600);
  }
  void KeyMode(int mode) {
    std::filesystem::permissions(fake_.root + "/node.key", std::filesystem::perms(mode));
  }
  std::vector<Check> All(int64_t now = kToday) { return CheckCertificates(config_, now); }
  Check Own(int64_t now = kToday) { return All(now).at(1); }
  Check Key() { return All().at(2); }

  const FakeMachine fake_;
  std::unique_ptr<Authority> authority_;
  CertificateAndKey pem_;
  DaemonConfig config_;
};

TEST_F(DoctorCertificatesTest, WhatIsInOrder) {
  for (const Check& check : All()) EXPECT_EQ(check.verdict, Verdict::kOk) << check.found;
  EXPECT_THAT(Own().found, HasSubstr("of node1 ends in 100 days, on "));
  EXPECT_THAT(Key().found, HasSubstr("mode 0600"));
}

TEST_F(DoctorCertificatesTest, WithoutTlsThereIsNothingToCheck) {
  config_.fields.clear();
  const std::vector<Check> checks = All();
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].verdict, Verdict::kSkipped);
}

TEST_F(DoctorCertificatesTest, TheEndIsSeenAMonthAhead) {
  EXPECT_EQ(Own(kToday + 69 * kADay).verdict, Verdict::kOk);
  EXPECT_EQ(Own(kToday + 71 * kADay).verdict, Verdict::kWarning);
  EXPECT_THAT(Own(kToday + 71 * kADay).found, HasSubstr("ends in 29 days"));
  EXPECT_EQ(Own(kToday + 100 * kADay).verdict, Verdict::kFailed);
  EXPECT_THAT(Own(kToday + 101 * kADay).found, HasSubstr("ended on"));
  EXPECT_EQ(All(kToday + 880 * kADay).at(0).verdict, Verdict::kWarning);  // the authority's own
}

TEST_F(DoctorCertificatesTest, NotYetValid) {
  Use(kToday + kADay, kToday + 100 * kADay);
  EXPECT_EQ(Own().verdict, Verdict::kFailed);
  EXPECT_THAT(Own().found, HasSubstr("is good from"));
}

TEST_F(DoctorCertificatesTest, AnotherAuthority) {
  const auto other =
      Authority::Create("other", {.from = kToday - kADay, .to = kToday + 900 * kADay});
  ASSERT_TRUE(other.ok());
  fake_.Put("/ca.pem", other->pem().certificate);
  EXPECT_EQ(Own().verdict, Verdict::kFailed);
  EXPECT_THAT(Own().found, HasSubstr("has not signed it"));
  fake_.Put("/ca.pem", other->pem().certificate + authority_->pem().certificate);
  EXPECT_EQ(Own().verdict, Verdict::kOk);  // one of several
}

TEST_F(DoctorCertificatesTest, TheKeysModeAndWhoseItIs) {
  KeyMode(0640);
  EXPECT_EQ(Key().verdict, Verdict::kWarning);
  KeyMode(0604);
  EXPECT_EQ(Key().verdict, Verdict::kFailed);
  KeyMode(0600);
  fake_.Put("/node.key", authority_->pem().key);
  EXPECT_EQ(Key().verdict, Verdict::kFailed);
  EXPECT_THAT(Key().found, HasSubstr("not of the certificate"));
  for (const Check& check : All()) EXPECT_THAT(check.found, Not(HasSubstr("PRIVATE")));
}

TEST_F(DoctorCertificatesTest, FilesThatAreNone) {
  fake_.Put("/node.pem", "hello");
  EXPECT_THAT(Own().found, HasSubstr("no certificate in PEM form"));
  config_.fields["peers.tls_cert"] = fake_.root + "/nowhere.pem";
  EXPECT_EQ(Own().verdict, Verdict::kFailed);
  EXPECT_THAT(Own().found, HasSubstr("nowhere.pem: No such file"));
  config_.fields.erase("peers.tls_cert");
  EXPECT_THAT(Own().remedy, HasSubstr("all three"));
}

}  // namespace
}  // namespace spccl::ctl
