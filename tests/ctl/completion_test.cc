#include "ctl/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/ctl/run_tool.h"

namespace spccl::ctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class Script {
 public:
  explicit Script(const std::string& shell) {
    const int fd = ::mkstemp(path_);
    EXPECT_GE(fd, 0);
    ::close(fd);
    const ToolRun run = RunArgs({"completion", shell});
    EXPECT_EQ(run.code, kFine);
    std::ofstream(path_) << run.out;
  }
  ~Script() { ::unlink(path_); }
  std::string path() const { return path_; }

 private:
  char path_[40] = "/tmp/spccl_completion_XXXXXX";
};

bool Has(const std::string& shell) {
  return std::system(absl::StrCat("command -v ", shell, " >/dev/null 2>&1").c_str()) == 0;
}

// What a real bash offers for the words of a command line, the last one being typed.
std::set<std::string> Offer(const Script& script, const std::vector<std::string>& words) {
  std::string line = absl::StrCat("bash --norc -c '. ", script.path(), "; COMP_WORDS=(spcclctl");
  for (const std::string& word : words) {
    absl::StrAppend(&line, " ", word.empty() ? "\"\"" : word);
  }
  absl::StrAppend(&line, "); COMP_CWORD=", words.size(),
                  "; _spcclctl; printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
  FILE* pipe = ::popen(line.c_str(), "r");
  std::string output;
  std::array<char, 4096> block;
  while (const size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
    output.append(block.data(), got);
  }
  EXPECT_EQ(::pclose(pipe), 0) << line;
  const std::vector<std::string> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  return {lines.begin(), lines.end()};
}

TEST(CompletionTest, ScriptsParseInTheirShells) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Script script(shell);
    if (!Has(shell)) {
      std::printf("no %s here: its script was not parsed\n", shell.c_str());
      continue;
    }
    EXPECT_EQ(std::system(absl::StrCat(shell, " -n ", script.path()).c_str()), 0) << shell;
  }
}

TEST(CompletionTest, BashOffersWhatTheToolTakes) {
  const Script script("bash");
  EXPECT_THAT(Offer(script, {"thr"}), ElementsAre("threshold"));
  EXPECT_THAT(Offer(script, {""}), Contains("doctor"));
  EXPECT_THAT(Offer(script, {"--run"}), ElementsAre("--runtime-dir"));
  EXPECT_THAT(Offer(script, {"threshold", "s"}), ElementsAre("set"));
  EXPECT_THAT(Offer(script, {"threshold", "set", "--in"}),
              UnorderedElementsAre("--inter", "--intra"));
  EXPECT_THAT(Offer(script, {"threshold", "set", "--codec", ""}),
              UnorderedElementsAre("coo", "pici"));
  EXPECT_THAT(Offer(script, {"algo", "set", "ri"}), ElementsAre("ring"));
  EXPECT_THAT(Offer(script, {"status", "-o", ""}), UnorderedElementsAre("text", "json"));
  EXPECT_THAT(Offer(script, {"-o", "j"}), ElementsAre("json"));
  EXPECT_THAT(Offer(script, {"frame", "encode", "--dtype", "bf"}), ElementsAre("bfloat16"));
  EXPECT_THAT(Offer(script, {"completion", ""}), Contains("fish"));
  EXPECT_THAT(Offer(script, {"jobs", ""}), Not(Contains("status")));
  EXPECT_THAT(Offer(script, {"comms", "--job", ""}), IsEmpty());  // any text: files by default
}

TEST(CompletionTest, FishOffersWhatTheToolTakes) {
  if (!Has("fish")) GTEST_SKIP() << "no fish here";
  const Script script("fish");
  const auto offers = [&script](const std::string& line, const std::string& word) {
    return std::system(absl::StrCat("fish -N -c 'source ", script.path(), "; complete -C \"", line,
                                    "\"' 2>/dev/null | cut -f1 | grep -qx -- ", word)
                           .c_str()) == 0;
  };
  EXPECT_TRUE(offers("spcclctl thr", "threshold"));
  EXPECT_TRUE(offers("spcclctl threshold ", "reset"));
  EXPECT_FALSE(offers("spcclctl threshold ", "doctor"));
  EXPECT_TRUE(offers("spcclctl threshold set --codec ", "coo"));
  EXPECT_TRUE(offers("spcclctl algo set ", "local"));
}

}  // namespace
}  // namespace spccl::ctl
