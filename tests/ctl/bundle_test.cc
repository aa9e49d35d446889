#include "ctl/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "ctl/certificates.h"
#include "ctl/fetch.h"
#include "tests/ctl/fake_machine.h"
#include "tests/ctl/run_tool.h"

namespace spccl::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kKey[] = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----";
constexpr char kCertificate[] = "-----BEGIN CERTIFICATE-----\ncHVibGlj\n-----END CERTIFICATE-----";

// What the system's own tar says of an archive.
std::string Tar(const std::string& how, const std::string& file, const std::string& member = "") {
  std::vector<std::string> arguments = {"tar", how, file};
  if (!member.empty()) arguments.push_back(member);
  const auto output = OutputOf(arguments, {.bytes = size_t{64} << 20, .nanos = 60'000'000'000});
  return output.ok() ? *output : std::string(output.status().message());
}

TEST(PrivateKeysTest, AreLeftOutWhereverTheyStand) {
  EXPECT_EQ(WithoutPrivateKeys(""), "");
  EXPECT_EQ(WithoutPrivateKeys("plain\ntext"), "plain\ntext");
  EXPECT_EQ(WithoutPrivateKeys(kCertificate), kCertificate);
  EXPECT_EQ(WithoutPrivateKeys(std::string("a\n") + kKey + "\nb"), "a\n[private key left out]\nb");
  EXPECT_EQ(WithoutPrivateKeys(std::string(kCertificate) + "\n" + kKey + "\n" + kKey),
            std::string(kCertificate) + "\n[private key left out]\n[private key left out]");
}

TEST(PrivateKeysTest, CutAnywhereNothingOfAKeyIsLeft) {
  const std::string text = std::string("before\n") + kKey + "\n" + kCertificate + "\n" + kKey;
  for (size_t from = 0; from < text.size(); ++from) {
    for (size_t to = from; to <= text.size(); ++to) {
      const std::string part = text.substr(from, to - from);
      const std::string clean = WithoutPrivateKeys(part);
      // A piece without either marker line says nothing of being a key.
      const bool marked = part.find("PRIVATE KEY-----") != std::string::npos;
      if (!marked) continue;
      EXPECT_THAT(clean, Not(HasSubstr("c2VjcmV0"))) << from << " to " << to;
    }
  }
}

class BundleTest : public ::testing::Test {
 protected:
  const FakeMachine fake_;
  const std::string file_ = fake_.root + "/bundle.tar.gz";
};

TEST_F(BundleTest, TarReadsWhatWasAdded) {
  Bundle bundle("top");
  bundle.Add("a/one.txt", std::string("one\n"));
  bundle.Add("two.json", absl::UnavailableError("no daemon"));
  bundle.AddFile("three", fake_.Put("/three", "3"));
  bundle.AddFile("four", fake_.root + "/none");
  const auto bytes = bundle.Write(file_);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  struct stat info;
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), *bytes);
  EXPECT_EQ(Tar("-tzf", file_), "top/index.json\ntop/a/one.txt\ntop/three\n");
  EXPECT_EQ(Tar("-xzOf", file_, "top/a/one.txt"), "one\n");
  const nlohmann::json index = nlohmann::json::parse(Tar("-xzOf", file_, "top/index.json"));
  ASSERT_EQ(index["parts"].size(), 4u);
  EXPECT_EQ(index["parts"][0]["bytes"], 4);
  EXPECT_EQ(index["parts"][0]["error"], nullptr);
  EXPECT_EQ(index["parts"][1]["error"], "no daemon");
  EXPECT_THAT(index["parts"][3]["error"].get<std::string>(), HasSubstr("No such file"));
}

TEST_F(BundleTest, PartsAndTheWholeAreBounded) {
  Bundle bundle("top");
  const std::string large(Bundle::kMostPartBytes + 7, 'x');
  bundle.AddFile("large", fake_.Put("/large", large), Part::kTail);
  EXPECT_EQ(bundle.items()[0].content.size(), Bundle::kMostPartBytes);
  EXPECT_EQ(bundle.items()[0].total_bytes, large.size());
  size_t bytes = 0;
  for (int i = 0; i < 20; ++i) bundle.Add("more", large);
  for (const Bundle::Item& item : bundle.items()) bytes += item.content.size();
  EXPECT_LE(bytes, Bundle::kMostBytes);
  EXPECT_THAT(bundle.items().back().error, HasSubstr("full"));
}

TEST_F(BundleTest, NothingIsOverwritten) {
  fake_.Put("/bundle.tar.gz", "mine");
  EXPECT_TRUE(absl::IsInvalidArgument(Bundle("top").Write(file_).status()));
  EXPECT_EQ(ReadFile(file_, 100).value(), "mine");
  EXPECT_TRUE(absl::IsNotFound(Bundle("top").Write(fake_.root + "/none/x").status()));
}

TEST_F(BundleTest, TheToolMakesOneWithoutADaemon) {
  const auto authority = Authority::Create("test", {.from = 0, .to = 4'000'000'000});
  ASSERT_TRUE(authority.ok());
  const std::string key = fake_.Put("/node.key", authority->pem().key);
  const std::string config =
      fake_.Put("/spccld.toml", "state_dir = \"" + fake_.root + "/state\"\npeers.tls_key = \"" +
                                    key + "\"\n# " + authority->pem().key.substr(0, 27) + "\n");
  fake_.Put("/state/flight/flight-1-comm1.spcclflight", "record\n" + authority->pem().key);
  const ToolRun run = RunArgs({"support-bundle", "--out", file_, "--config", config,
                               "--runtime-dir", fake_.root + "/none", "--deadline", "1s"});
  ASSERT_EQ(run.code, kFine) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("doctor.json"), HasSubstr("readable by its owner only"),
                             HasSubstr("no daemon at")));
  EXPECT_THAT(
      Tar("-tzf", file_),
      AllOf(HasSubstr("/doctor.json\n"), HasSubstr("/index.json\n"),
            HasSubstr("/daemon/config.txt\n"), HasSubstr("/flight/flight-1-comm1.spcclflight\n"),
            HasSubstr("/machine/kernel.txt\n"), HasSubstr("/machine/proc/cpuinfo\n")));
  const std::string all = Tar("-xzOf", file_);
  EXPECT_THAT(all, AllOf(HasSubstr("\"schema\": \"spccl.v1\""), HasSubstr("peers.tls_key"),
                         HasSubstr("record\n[private key left out]"), HasSubstr(key)));
  // Not one line of the key's.
  std::istringstream lines(authority->pem().key);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(all, Not(HasSubstr(line)));
  const ToolRun again = RunArgs({"support-bundle", "--out", file_});
  EXPECT_EQ(again.code, kWrongUse);
}

TEST_F(BundleTest, OfTheStateFolderNothingButItsOwnIsTaken) {
  const std::string secret = fake_.Put("/secret", "what root alone may read");
  fake_.Put("/state/flight/flight-2-comm1.spcclflight", "a record");
  fake_.Put("/state/flight/notes", "what somebody left there");
  fake_.Link("/state/flight/flight-1-evil.spcclflight", secret);
  fake_.Link("/state/settings.toml", secret);
  const std::string config =
      fake_.Put("/spccld.toml", "state_dir = \"" + fake_.root + "/state\"\n");
  const ToolRun run = RunArgs({"support-bundle", "--out", file_, "--config", config,
                               "--runtime-dir", fake_.root + "/none", "--deadline", "1s"});
  ASSERT_EQ(run.code, kFine) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("flight-1-evil.spcclflight: a symbolic link"),
                             HasSubstr("settings.toml: a symbolic link"),
                             HasSubstr("left out: 1 not named as flight records are")));
  EXPECT_THAT(Tar("-xzOf", file_), AllOf(HasSubstr("a record"), Not(HasSubstr("root alone")),
                                         Not(HasSubstr("somebody left there"))));
}

TEST_F(BundleTest, AFlightFolderThatIsALinkIsNotFollowed) {
  fake_.Put("/elsewhere/flight-2-comm1.spcclflight", "what root alone may read");
  fake_.Link("/state/flight", fake_.root + "/elsewhere");
  const std::string config =
      fake_.Put("/spccld.toml", "state_dir = \"" + fake_.root + "/state\"\n");
  const ToolRun run = RunArgs({"support-bundle", "--out", file_, "--config", config,
                               "--runtime-dir", fake_.root + "/none", "--deadline", "1s"});
  ASSERT_EQ(run.code, kFine) << run.err;
  EXPECT_THAT(Tar("-xzOf", file_), Not(HasSubstr("root alone")));
}

}  // namespace
}  // namespace spccl::ctl
