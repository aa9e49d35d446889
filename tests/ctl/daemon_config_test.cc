#include "ctl/daemon_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ctl/fake_machine.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

// Arguments as /proc has them.
std::string Line(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += argument + '\0';
  return line;
}

TEST(DaemonConfigTest, WithoutAFileAllIsAsByDefault) {
  const FakeMachine fake;
  const auto config = ReadDaemonConfig(fake.machine, std::nullopt, "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->path, "");
  EXPECT_EQ(config->Get("peers.listen"), "");
  EXPECT_EQ(config->Get("state_dir", "/var/lib/spccl"), "/var/lib/spccl");
}

TEST(DaemonConfigTest, TheUsualFile) {
  const FakeMachine fake;
  fake.Put("/etc/spccl/spccld.toml",
           "# a comment\nchannels = 3\n[peers]\nlisten = \"0.0.0.0:7440\"\nmunge = true\n");
  const auto config = ReadDaemonConfig(fake.machine, 7, "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Get("channels"), "3");
  EXPECT_EQ(config->Get("peers.munge"), "true");
  EXPECT_THAT(config->Text(), HasSubstr("peers.listen = \"0.0.0.0:7440\"\n"));
  EXPECT_THAT(config->Text(), Not(HasSubstr("comment")));
}

TEST(DaemonConfigTest, TheDaemonsCommandLineNamesItsFileAndItsFlagsWin) {
  const FakeMachine fake;
  const std::string file =
      fake.Put("/other.toml", "metrics_listen = \"unix\"\npeers.listen = \"a:1\"\n");
  fake.Put("/etc/spccl/spccld.toml", "channels = 3\n");
  fake.Put("/proc/7/cmdline", Line({"spccld", "--config", file, "--metrics-listen=127.0.0.1:9464",
                                    "--peers-tls-key", "/k", "--pin", "--state-dir", "/s"}));
  const auto config = ReadDaemonConfig(fake.machine, 7, "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->path, file);
  EXPECT_EQ(config->Get("metrics_listen"), "127.0.0.1:9464");
  EXPECT_EQ(config->Get("peers.listen"), "a:1");
  EXPECT_EQ(config->Get("peers.tls_key"), "/k");
  EXPECT_EQ(config->Get("state_dir"), "/s");
  EXPECT_EQ(config->Get("channels"), "");
}

TEST(DaemonConfigTest, ARelativeFileIsBelowTheDaemonsFolder) {
  const FakeMachine fake;
  fake.Put("/proc/7/cmdline", Line({"spccld", "--config=x.toml"}));
  fake.Put("/proc/7/cwd/x.toml", "channels = 5\n");
  EXPECT_EQ(ReadDaemonConfig(fake.machine, 7, "").value().Get("channels"), "5");
}

TEST(DaemonConfigTest, AFileThatIsNamedMustBeThereAndBeToml) {
  const FakeMachine fake;
  EXPECT_TRUE(
      absl::IsNotFound(ReadDaemonConfig(fake.machine, std::nullopt, fake.root + "/none").status()));
  const std::string bad = fake.Put("/bad.toml", "channels = 3\nlisten = \n");
  const auto config = ReadDaemonConfig(fake.machine, std::nullopt, bad);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("bad.toml:2:"));
}

TEST(DaemonConfigTest, TheDaemonsProgramHasTheLastWord) {
  const FakeMachine fake;
  const std::string takes = fake.MakeExecutable(
      "/takes", "#!/bin/sh\n[ \"$1 $2 $3\" = '--config /x.toml --print-config' ]\n");
  EXPECT_TRUE(AskDaemonProgram(takes, "/x.toml").ok());
  const std::string refuses = fake.MakeExecutable(
      "/refuses", "#!/bin/sh\necho \"spccld: $2:1:1: unknown field op_timeot\" >&2\nexit 1\n");
  const absl::Status refused = AskDaemonProgram(refuses, "/x.toml");
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(refused.message(), "/x.toml:1:1: unknown field op_timeot");
  const std::string breaks = fake.MakeExecutable("/breaks", "#!/bin/sh\nexit 127\n");
  EXPECT_TRUE(absl::IsUnavailable(AskDaemonProgram(breaks, "/x.toml")));
  EXPECT_TRUE(absl::IsUnavailable(AskDaemonProgram(fake.root + "/none", "/x.toml")));
}

}  // namespace
}  // namespace spccl::ctl
