#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace spccl::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments,
                                  std::string default_path = "/nonexistent") {
  std::vector<const char*> argv = {"spccld"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), "1.2.3", default_path);
}

std::string MessageOf(const std::string& text) {
  Config config;
  const absl::Status status = ApplyConfigText(text, "f.toml", &config);
  EXPECT_EQ(config, Config{}) << "changed by: " << text;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    const int fd = ::mkstemp(path_);
    EXPECT_GE(fd, 0);
    ::close(fd);
    std::ofstream(path_) << text;
  }
  ~TempFile() { ::unlink(path_); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/spccl_config_XXXXXX";
};

TEST(ConfigTest, FileSetsEveryKindOfField) {
  Config config;
  const absl::Status status = ApplyConfigText(R"(
runtime_dir = "/run/other"
channels = 8
pin = true
op_timeout = "1m30s"
codec = "pici-column"
admin_group = 0
metrics_listen = "127.0.0.1:9464"
log = {level = "debug", format = "json"}
[peers]
listen = "[::]:7440"
advertise = "node1.example"
munge = true
heartbeat = "250ms"
[limits]
sessions = 12
buffer_bytes = "64GiB"
[thresholds.pici]
intra = 0.25
inter = "auto"
ag = 1
)",
                                              "f.toml", &config);
  ASSERT_TRUE(status.ok()) << status;
  Config expected;
  expected.runtime_dir = "/run/other";
  expected.channels = 8;
  expected.pin = true;
  expected.op_timeout_ns = 90'000'000'000;
  expected.settings.codec = policy::Codec::kPiciColumn;
  expected.admin_group = "0";
  expected.metrics_listen = "127.0.0.1:9464";
  expected.log_level = LogLevel::kDebug;
  expected.peers_listen = "[::]:7440";
  expected.peers_advertise = "node1.example";
  expected.peers_munge = true;
  expected.peers_heartbeat_ns = 250'000'000;
  expected.log_format = LogFormat::kJson;
  expected.max_sessions = 12;
  expected.max_buffer_bytes_per_client = uint64_t{64} << 30;
  expected.settings.pici.intra = 0.25;
  expected.settings.pici.inter = policy::kAutoThreshold;
  expected.settings.pici.ag = 1;
  EXPECT_EQ(config, expected);
}

TEST(ConfigTest, RefusalsNamePlaceFindingAndExpectation) {
  EXPECT_EQ(MessageOf("\n[log]\nlevel = \"loud\"\n"),
            "f.toml:3:9: log.level: found the string \"loud\", expected one of debug, info, "
            "warning, error");
  EXPECT_EQ(MessageOf("channels = 65"),
            "f.toml:1:12: channels: found the integer 65, expected an integer from 0 to 64");
  EXPECT_EQ(MessageOf("channels = 1.0"),
            "f.toml:1:12: channels: found the number 1.0, expected an integer from 0 to 64");
  EXPECT_THAT(MessageOf("channels = -inf"), HasSubstr("found the number -inf, expected"));
  EXPECT_THAT(MessageOf("channels = 1e300"), HasSubstr("found the number 1e+300, expected"));
  EXPECT_EQ(MessageOf("channels = -1"),
            "f.toml:1:12: channels: found the integer -1, expected an integer from 0 to 64");
  EXPECT_EQ(MessageOf("pin = true\n  channels = \"8\""),
            "f.toml:2:14: channels: found the string \"8\", expected an integer from 0 to 64");
  EXPECT_THAT(MessageOf("thresholds.coo.ag = 1.5"),
              StartsWith("f.toml:1:21: thresholds.coo.ag: found the number 1.5, expected"));
  EXPECT_THAT(MessageOf("thresholds.coo.ag = nan"), HasSubstr("expected a sparsity"));
  EXPECT_THAT(MessageOf("pin = 1"), HasSubstr("found the integer 1, expected true or false"));
  EXPECT_THAT(MessageOf("op_timeout = 30"), HasSubstr("\"30s\""));
  EXPECT_THAT(MessageOf("op_timeout = \"30\""), HasSubstr("found the string \"30\""));
  EXPECT_THAT(MessageOf("op_timeout = \"-3s\""), HasSubstr("expected a duration"));
  EXPECT_THAT(MessageOf("op_timeout = \"0\""), HasSubstr("expected a duration"));
  EXPECT_THAT(MessageOf("runtime_dir = \"run\""), HasSubstr("expected an absolute path"));
  EXPECT_THAT(MessageOf("admin_group = \"no-such-group-here\""), HasSubstr("a group that exists"));
  EXPECT_THAT(MessageOf("limits.buffer_bytes = \"16XiB\""), HasSubstr("expected bytes"));
  EXPECT_THAT(MessageOf("limits.buffer_bytes = \"99999999T\""), HasSubstr("expected bytes"));
  EXPECT_THAT(MessageOf("peers.listen = \"7440\""), HasSubstr("expected HOST:PORT"));
  EXPECT_THAT(MessageOf("peers.listen = \"::1:7440\""), HasSubstr("expected HOST:PORT"));
  EXPECT_EQ(
      MessageOf("channels = 2\nmetrics_listen = \"node1:9464\"\n"),
      "f.toml:2:18: metrics_listen: found the string \"node1:9464\", expected unix, unix:PATH "
      "with an absolute path, HOST:PORT with an IP address (IPv6 in brackets) or localhost, or "
      "an empty string");
  EXPECT_THAT(MessageOf("metrics_listen = 9464"), HasSubstr("found the integer 9464"));
  EXPECT_THAT(MessageOf("metrics_listen = \"unix:m.sock\""), HasSubstr("expected unix"));
  EXPECT_THAT(MessageOf("peers.advertise = \"a b\""), HasSubstr("expected HOST or HOST:PORT"));
  EXPECT_THAT(MessageOf("peers.tls_key = \"key\""), HasSubstr("or an empty string"));
  EXPECT_THAT(MessageOf("channels = [1]"), HasSubstr("found an array"));
  EXPECT_THAT(MessageOf("log = 3"), HasSubstr("log: found the integer 3, expected a table"));
}

TEST(ConfigTest, UnknownFieldsNameTheNearest) {
  EXPECT_EQ(MessageOf("\n chanels = 4"),
            "f.toml:2:2: unknown field chanels; the nearest known one is channels");
  EXPECT_EQ(MessageOf("[thresholds.pici]\nintre = 0.5"),
            "f.toml:2:1: unknown field thresholds.pici.intre; the nearest known one is "
            "thresholds.pici.intra");
  EXPECT_EQ(MessageOf("[surprise]\n"), "f.toml:1:2: unknown field surprise");  // none is near
}

TEST(ConfigTest, BrokenTomlNamesThePlace) {
  EXPECT_THAT(MessageOf("channels = 4\npin = = 3\n"), StartsWith("f.toml:2:"));
  EXPECT_THAT(MessageOf("channels = 4\nchannels = 5\n"), StartsWith("f.toml:2:"));
}

TEST(ConfigTest, AKeyOfVeryManyPartsIsRefused) {
  std::string deep = "a";
  for (int part = 0; part < 100'000; ++part) deep += ".a";
  for (const std::string& text :
       {"[" + deep + "]\n", deep + " = 1\n", "log = {" + deep + " = 1}\n"}) {
    EXPECT_EQ(MessageOf("channels = 4\n" + text),
              "f.toml:2:1: a key of too many parts, expected 65 at most");
  }
  EXPECT_EQ(MessageOf("[log]\nlevel = \"" + deep + "\"\n").find("f.toml:2:9: log.level: found"),
            0u);
}

TEST(ConfigTest, EmptyTablesOfKnownFieldsAreFine) {
  Config config;
  EXPECT_TRUE(ApplyConfigText("[log]\n[thresholds.coo]\n", "f", &config).ok());
  EXPECT_EQ(config, Config{});
}

TEST(ConfigTest, PrintedConfigurationReadsBackEqual) {
  Config config;
  config.runtime_dir = "/run/a \"quoted\\ name";
  config.channels = 63;
  config.op_timeout_ns = 1'500'000'000;
  config.max_buffer_bytes_per_client = 1'000'001;
  config.settings.algorithm = policy::Algorithm::kRing;
  config.settings.coo.inter = 0.1 + 0.2;  // needs all its digits
  Config read;
  const absl::Status status = ApplyConfigText(PrintConfig(config), "printed", &read);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(read, config);
}

TEST(ConfigTest, EveryFieldIsAFlagAndItsDefaultIsAccepted) {
  ASSERT_GT(ConfigFields().size(), 20u);
  for (const FieldInfo& field : ConfigFields()) {
    std::string value = field.default_value;
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    const bool boolean = field.expected == "true or false";
    const absl::StatusOr<CommandLine> parsed =
        boolean ? Parse({field.flag + "=" + value}) : Parse({field.flag, value});
    ASSERT_TRUE(parsed.ok()) << field.flag << ": " << parsed.status();
    EXPECT_EQ(parsed->config, Config{}) << field.flag;
    const absl::Status wrong = Parse({field.flag + "=@"}).status();
    EXPECT_THAT(std::string(wrong.message()),
                AllOf(StartsWith(field.flag + ": found \"@\""), HasSubstr(field.expected)));
  }
}

TEST(ConfigTest, FlagsWinOverTheFileAndTheFileOverTheDefaults) {
  const TempFile file("channels = 3\nlog.level = \"error\"\npin = true\n");
  absl::StatusOr<CommandLine> parsed =
      Parse({"--config", file.path(), "--channels", "5", "--pin=false"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->run);
  EXPECT_EQ(parsed->config.channels, 5u);
  EXPECT_EQ(parsed->config.log_level, LogLevel::kError);
  EXPECT_FALSE(parsed->config.pin);
  parsed = Parse({"--pin"}, file.path());  // as the default file
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.channels, 3u);
  EXPECT_TRUE(parsed->config.pin);
}

TEST(ConfigTest, AWrongFileIsAnErrorWithItsName) {
  const TempFile file("channels = 3\nlog.level = 5\n");
  EXPECT_THAT(std::string(Parse({"--config", file.path()}).status().message()),
              StartsWith(file.path() + ":2:13: log.level: found the integer 5"));
  EXPECT_THAT(std::string(Parse({}, file.path()).status().message()),
              StartsWith(file.path() + ":2:13:"));
  EXPECT_EQ(Parse({"--config", "/no/such/file"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Parse({"--config", "/"}).ok());
}

TEST(ConfigTest, PeersListenBeyondLoopbackOnlyWithProof) {
  const TempFile file("pin = true\npeers.listen = \"0.0.0.0:7440\"\n");
  const std::string found = "peers.listen: found \"0.0.0.0:7440\", expected a loopback address";
  EXPECT_THAT(std::string(Parse({"--config", file.path()}).status().message()),
              StartsWith(file.path() + ":2:16: " + found));
  EXPECT_THAT(std::string(Parse({"--peers-listen", "0.0.0.0:7440"}).status().message()),
              StartsWith(found));
  EXPECT_TRUE(Parse({"--config", file.path(), "--peers-munge"}).ok());
  EXPECT_TRUE(Parse({"--config", file.path(), "--peers-listen", "[::1]:0"}).ok());
  EXPECT_TRUE(Parse({"--config", file.path(), "--peers-tls-ca=/a", "--peers-tls-cert=/b",
                     "--peers-tls-key=/c"})
                  .ok());
}

TEST(ConfigTest, TlsNeedsAllItsFiles) {
  const TempFile file("[peers]\ntls_ca = \"/a\"\ntls_key = \"/c\"\n");
  EXPECT_THAT(std::string(Parse({"--config", file.path()}).status().message()),
              AllOf(StartsWith(file.path() + ":3:11: peers.tls_key: found \"/c\""),
                    HasSubstr("expected peers.tls_cert as well")));
  EXPECT_TRUE(Parse({"--config", file.path(), "--peers-tls-cert=/b"}).ok());
}

TEST(ConfigTest, WhatJobsGetAndMayTake) {
  const TempFile file("[jobs]\nweight = 3\nmax_buffer_bytes = \"6MiB\"\nmax_channels = 2\n");
  const auto parsed = Parse({"--config", file.path(), "--jobs-max-operations=9"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(
      parsed->config.job_share,
      (JobShare{.weight = 3, .max_buffer_bytes = 6 << 20, .max_operations = 9, .max_channels = 2}));
  EXPECT_FALSE(Parse({"--jobs-weight=0"}).ok());
  EXPECT_TRUE(Parse({"--jobs-max-buffer-bytes=0"}).ok());
}

TEST(ConfigTest, TheHostsShareIsAutoOffOrANumber) {
  EXPECT_EQ(Parse({})->config.gpu_multipath, std::nullopt);
  EXPECT_EQ(Parse({"--gpu-multipath=auto"})->config.gpu_multipath, std::nullopt);
  EXPECT_EQ(Parse({"--gpu-multipath=off"})->config.gpu_multipath, 0);
  EXPECT_EQ(Parse({"--gpu-multipath=0.25"})->config.gpu_multipath, 0.25);
  for (const char* const wrong : {"1", "-0.1", "on", "nan", "0.2x"}) {
    const absl::StatusOr<CommandLine> parsed = Parse({std::string("--gpu-multipath=") + wrong});
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("a number from 0 to 0.9"))
        << wrong;
  }
}

// Of every flag, as in a file, and whatever comes after it.
TEST(ConfigTest, AnEmptyValueIsAnEmptyValue) {
  for (const FieldInfo& field : ConfigFields()) {
    Config expected;
    const bool taken = ApplyConfigText(field.name + " = \"\"", "f.toml", &expected).ok();
    const absl::StatusOr<CommandLine> last = Parse({field.flag + "="});
    const absl::StatusOr<CommandLine> first = Parse({field.flag + "=", "--config="});
    ASSERT_EQ(last.ok(), taken) << field.flag;
    ASSERT_EQ(first.status(), last.status());
    if (taken) {
      EXPECT_EQ(last->config, expected) << field.flag;
      EXPECT_EQ(first->config, expected) << field.flag;
    } else {
      EXPECT_EQ(last.status().message(), field.flag + ": found \"\", expected " + field.expected);
    }
  }
  const TempFile file("gpu.nccl = \"/opt/libnccl.so\"\npin = true\n");
  const auto parsed = Parse({"--config", file.path(), "--gpu-nccl=", "--pin=false"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.gpu_nccl, "");
  EXPECT_FALSE(parsed->config.pin);
  EXPECT_FALSE(Parse({"--pin="}).ok());
  EXPECT_TRUE(Parse({"--config=", "--channels=7"})->file.empty());
  EXPECT_THAT(std::string(Parse({"--chanels="}).status().message()),
              StartsWith("unknown flag --chanels;"));
}

TEST(ConfigTest, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(Parse({"--chanels=3"}).status().message(),
            "unknown flag --chanels; the nearest known one is --channels");
  EXPECT_EQ(Parse({"--channels"}).status().message(), "--channels: 1 required VALUE missing");
  EXPECT_EQ(Parse({"--bogus"}).status().message(), "unknown flag --bogus");  // none is near
  EXPECT_FALSE(Parse({"stray"}).ok());
}

// The options that the manual page lists: `.It Fl -name`.
TEST(ConfigTest, TheManualListsEveryFlagAsItIs) {
  std::stringstream page;
  page << std::ifstream(SPCCL_SOURCE_DIR "/docs/man/spccld.8").rdbuf();
  std::set<std::string> listed;
  const std::string prefix = ".It Fl -";
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(prefix)) {
      const std::string rest = line.substr(prefix.size());
      listed.insert("--" + rest.substr(0, rest.find(' ')));
    }
  }
  std::set<std::string> real = {"--config", "--print-config", "--version"};
  for (const FieldInfo& field : ConfigFields()) {
    real.insert(field.flag);
    const std::string value =
        field.default_value.starts_with('"') ? "\\&" + field.default_value : field.default_value;
    const std::string entry = ".Pq Ic " + field.name + "\n" + field.help + "\nExpected:\n" +
                              field.expected + ".\nDefault:\n.Li " + value;
    EXPECT_THAT(page.str(), HasSubstr(entry));
  }
  EXPECT_EQ(listed, real);
}

TEST(ConfigTest, HelpVersionAndPrintConfigAnswerWithoutARun) {
  const absl::StatusOr<CommandLine> help = Parse({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_FALSE(help->run);
  for (const FieldInfo& field : ConfigFields()) EXPECT_THAT(help->output, HasSubstr(field.flag));
  EXPECT_EQ(Parse({"--version"})->output, "spccld 1.2.3\n");
  const absl::StatusOr<CommandLine> printed = Parse({"--channels=9", "--print-config"});
  ASSERT_TRUE(printed.ok());
  EXPECT_FALSE(printed->run);
  EXPECT_EQ(printed->output, PrintConfig(printed->config));
  EXPECT_THAT(printed->output, HasSubstr("\nchannels = 9\n"));
}

}  // namespace
}  // namespace spccl::daemon
