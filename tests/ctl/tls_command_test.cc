#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/ctl/run_tool.h"

namespace spccl::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsCommandTest : public ::testing::Test {
 protected:
  TlsCommandTest() {
    char pattern[] = "/tmp/spccl_tls_XXXXXX";
    parent_ = ::mkdtemp(pattern);
    folder_ = parent_ + "/pki";
  }
  ~TlsCommandTest() override { std::filesystem::remove_all(parent_); }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  mode_t Mode(const std::string& name) {
    struct stat info = {};
    EXPECT_EQ(::stat((folder_ + "/" + name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }
  ToolRun Init(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"tls", "init", "--dir", folder_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunArgs(arguments);
  }

  std::string parent_, folder_;
};

TEST_F(TlsCommandTest, MakesACaAndNodesAndSaysWhatToDo) {
  const ToolRun run = Init({"--host", "n1,10.0.0.1", "--host", "n2"});
  ASSERT_EQ(run.code, kFine) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("Made a private CA"), HasSubstr(folder_ + "/n1.key"),
                             HasSubstr("tls_cert = \"/etc/spccl/n2.pem\""),
                             HasSubstr("advertise = \"n1\"")));
  for (const std::string name : {"ca.key", "n1.key", "n2.key"}) {
    EXPECT_EQ(Mode(name), 0600u) << name;
    EXPECT_THAT(Read(name), HasSubstr("PRIVATE KEY"));
  }
  for (const std::string name : {"ca.pem", "n1.pem", "n2.pem"}) {
    EXPECT_THAT(Read(name), AllOf(HasSubstr("CERTIFICATE"), Not(HasSubstr("PRIVATE"))));
  }
  EXPECT_EQ(Mode(""), 0700u);
}

TEST_F(TlsCommandTest, AddsANodeToTheCaThere) {
  ASSERT_EQ(Init({"--host", "n1"}).code, kFine);
  const std::string ca = Read("ca.pem"), key = Read("ca.key"), first = Read("n1.pem");
  const ToolRun run = Init({"--host", "n2", "-o", "json"});
  ASSERT_EQ(run.code, kFine) << run.err;
  EXPECT_EQ(run.json()["made_ca"], false);
  EXPECT_EQ(run.json()["hosts"][0]["cert"], folder_ + "/n2.pem");
  EXPECT_EQ(Read("ca.pem"), ca);
  EXPECT_EQ(Read("ca.key"), key);
  EXPECT_EQ(Read("n1.pem"), first);
}

TEST_F(TlsCommandTest, OverwritesNothing) {
  ASSERT_EQ(Init({"--host", "n1"}).code, kFine);
  const std::string before = Read("n1.key");
  const ToolRun run = Init({"--host", "n2", "--host", "n1"});
  EXPECT_EQ(run.code, kWrongUse);
  EXPECT_THAT(run.err, AllOf(HasSubstr("n1.pem"), HasSubstr("nothing is overwritten")));
  EXPECT_EQ(Read("n1.key"), before);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/n2.key"));
}

TEST_F(TlsCommandTest, WrongNamesAreRefusedBeforeAnythingIsMade) {
  for (const std::string host : {"a b", "../up", "n1,", "ca"}) {
    EXPECT_EQ(Init({"--host", host}).code, kWrongUse) << host;
  }
  EXPECT_EQ(Init({"--host", "n1", "--host", "n1"}).code, kWrongUse);
  EXPECT_EQ(Init({}).code, kWrongUse);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(TlsCommandTest, ABrokenCaIsNamed) {
  ASSERT_EQ(Init({"--host", "n1"}).code, kFine);
  std::filesystem::copy_file(folder_ + "/n1.pem", folder_ + "/ca.pem",
                             std::filesystem::copy_options::overwrite_existing);
  const ToolRun run = Init({"--host", "n2"});
  EXPECT_EQ(run.code, kWrongUse);
  EXPECT_THAT(run.err, HasSubstr("ca.pem"));
}

TEST_F(TlsCommandTest, ACaThatIsNoFileIsRefused) {
  std::filesystem::create_directories(folder_ + "/ca.pem");
  const ToolRun run = Init({"--host", "n1"});
  EXPECT_EQ(run.code, kWrongUse);
  EXPECT_THAT(run.err, HasSubstr("ca.pem: not a regular file"));
}

}  // namespace
}  // namespace spccl::ctl
