#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace spccl {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { ConfigureLog(LogLevel::kInfo, LogFormat::kText); }

  static std::string Logged(LogLevel level, std::string_view message,
                            std::initializer_list<LogField> fields = {}) {
    testing::internal::CaptureStderr();
    Log(level, "session", message, fields);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, TextHasTimeLevelComponentMessageAndFields) {
  EXPECT_THAT(Logged(LogLevel::kWarning, "rank died", {{"rank", "3"}, {"why", "it \"fell\""}}),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z warning session: rank "
                           "died rank=\"3\" why=\"it \\\\\"fell\\\\\"\"\n"));
}

TEST_F(LogTest, JsonIsOneObjectALine) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kJson);
  const std::string line =
      Logged(LogLevel::kError, "a \"quoted\" \\ message\n\x7f", {{"pid", "7"}, {"tab\t", "\x01"}});
  EXPECT_THAT(line, EndsWith("}\n"));
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["component"], "session");
  EXPECT_EQ(json["message"], "a \"quoted\" \\ message\n\x7f");
  EXPECT_EQ(json["pid"], "7");
  EXPECT_EQ(json["tab\t"], "\x01");
  EXPECT_THAT(json["time"].get<std::string>(), EndsWith("Z"));
}

TEST_F(LogTest, BelowTheLeastLevelNothingIsWritten) {
  EXPECT_EQ(Logged(LogLevel::kDebug, "unheard"), "");
  ConfigureLog(LogLevel::kError, LogFormat::kText);
  EXPECT_EQ(Logged(LogLevel::kWarning, "unheard"), "");
  EXPECT_THAT(Logged(LogLevel::kError, "heard"), HasSubstr("heard"));
}

TEST_F(LogTest, AMessageCannotForgeALine) {
  const std::string line =
      Logged(LogLevel::kInfo, "name\n2026-01-01T00:00:00.000000Z error daemon: forged");
  EXPECT_THAT(line, HasSubstr("name\\u000a2026"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(LogTest, TerminalsAreGivenNoCommands) {
  EXPECT_THAT(Logged(LogLevel::kInfo,
                     "\xC2\x9B"
                     "2J \xC2\xA0\xC3\xA9\x7F"),
              HasSubstr("\\u009b2J \xC2\xA0\xC3\xA9\\u007f"));
}

// Every kind of sequence that is not UTF-8, and valid ones of each length, which stay.
TEST_F(LogTest, BytesThatAreNotUtf8AreReplaced) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kJson);
  const std::string replacement = "\xEF\xBF\xBD";
  for (const std::string bad :
       {"\x80", "\xBF", "\xC0", "\xC1", "\xC3", "\xF5", "\xFF", "\xE2\x82", "\xF0\x9F\x98"}) {
    std::string replaced;
    for (size_t i = 0; i < bad.size(); ++i) replaced += replacement;
    const auto json = nlohmann::json::parse(Logged(LogLevel::kInfo, "<" + bad + ">"));
    EXPECT_EQ(json["message"], "<" + replaced + ">");
  }
  for (const std::string bad :
       {"\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_THAT(nlohmann::json::parse(Logged(LogLevel::kInfo, bad))["message"].get<std::string>(),
                Not(HasSubstr(bad)));
  }
  const std::string good = "a \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xEF\xBF\xBF \xF4\x8F\xBF\xBF";
  EXPECT_EQ(nlohmann::json::parse(Logged(LogLevel::kInfo, good))["message"], good);
}

// Has standard error go elsewhere meanwhile.
class RedirectStderr {
 public:
  explicit RedirectStderr(int to) : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {
    std::fflush(stderr);
    SPCCL_CHECK(::dup2(to, STDERR_FILENO) == STDERR_FILENO);
  }
  ~RedirectStderr() {
    FlushLog();
    ::dup2(before_.get(), STDERR_FILENO);
  }

 private:
  const UniqueFd before_;
};

// All that can be read now.
std::string Drain(int fd) {
  std::string all;
  char block[4096];
  for (pollfd query{.fd = fd, .events = POLLIN, .revents = 0}; ::poll(&query, 1, 0) == 1;) {
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got <= 0) break;
    all.append(block, static_cast<size_t>(got));
  }
  return all;
}

size_t CountLines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Would wait for ever if it waited.
TEST_F(LogTest, LinesThatAFullPipeHasNoRoomForAreCountedAndTold) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    ConfigureLog(LogLevel::kInfo, format);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd read(ends[0]), write(ends[1]);
    const RedirectStderr redirect(write.get());
    constexpr size_t kLines = 2000;
    const std::string message(100, 'm');
    for (size_t i = 0; i < kLines; ++i) Log(LogLevel::kInfo, "test", message);
    const size_t kept = CountLines(Drain(read.get()));
    EXPECT_GT(kept, 0u);
    ASSERT_LT(kept, kLines);
    Log(LogLevel::kInfo, "test", "again");
    const std::string after = Drain(read.get());
    ASSERT_EQ(CountLines(after), 2u) << after;
    const std::string told = after.substr(0, after.find('\n'));
    const std::string lost = std::to_string(kLines - kept);
    if (format == LogFormat::kJson) {
      const auto json = nlohmann::json::parse(told);
      EXPECT_EQ(json["level"], "warning");
      EXPECT_EQ(json["lines"], lost);
    } else {
      EXPECT_THAT(told, HasSubstr(" warning log: lines were lost"));
      EXPECT_THAT(told, EndsWith("lines=\"" + lost + "\""));
    }
    EXPECT_THAT(after, HasSubstr("again"));
    Log(LogLevel::kInfo, "test", "no more are lost");
    EXPECT_EQ(CountLines(Drain(read.get())), 1u);
  }
}

// The one that it was in the middle of ends, so that the next begins a line.
TEST_F(LogTest, ALineLongerThanThePipeHasRoomForIsCutAndCountedAsLost) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read(ends[0]), write(ends[1]);
  const RedirectStderr redirect(write.get());
  Log(LogLevel::kInfo, "test", std::string(1 << 20, 'm'));
  EXPECT_EQ(CountLines(Drain(read.get())), 0u);
  Log(LogLevel::kInfo, "test", "again");
  EXPECT_THAT(Drain(read.get()), MatchesRegex("\n[^\n]*lines=\"1\"\n[^\n]* info test: again\n"));
}

// A terminal as standard error; `master` is who reads it.
class Terminal {
 public:
  ~Terminal() {
    ::setfsuid(::geteuid());
    ::prctl(PR_SET_DUMPABLE, 1);
  }
  // From now on it is not to be opened, as if it were another user's.
  void Forbid() {
    SPCCL_CHECK(::fchmod(terminal_.get(), 0) == 0);
    ::setfsuid(65534);  // no more than that if this is root
  }
  int master() const { return master_.get(); }

 private:
  static UniqueFd Open(const UniqueFd& master) {
    SPCCL_CHECK(::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0);
    return UniqueFd(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  }

  const UniqueFd master_{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  const UniqueFd terminal_ = Open(master_);
  const RedirectStderr redirect_{terminal_.get()};
};

void LogManyLines() {
  for (int i = 0; i < 2000; ++i) Log(LogLevel::kInfo, "test", std::string(100, 'm'));
}

TEST_F(LogTest, ATerminalThatNobodyReadsIsNotWaitedFor) {
  const Terminal terminal;
  LogManyLines();
  EXPECT_EQ(::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
  while (!Drain(terminal.master()).empty()) continue;
  Log(LogLevel::kInfo, "test", "again");
  EXPECT_THAT(Drain(terminal.master()), AllOf(HasSubstr("lines were lost"), HasSubstr("again")));
}

TEST_F(LogTest, NoDescriptorIsTakenLater) {
  const Terminal terminal;
  Log(LogLevel::kInfo, "test", "first");
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  LogManyLines();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(Drain(terminal.master()), HasSubstr(" info test: mmm"));
  Log(LogLevel::kInfo, "test", "again");
  EXPECT_THAT(Drain(terminal.master()), AllOf(HasSubstr("lines were lost"), HasSubstr("again")));
}

TEST_F(LogTest, ATerminalOfAnotherUsersThatNobodyReadsIsNotWaitedFor) {
  Terminal terminal;
  terminal.Forbid();
  LogManyLines();
  std::string all;
  while (all.find("lines were lost") == std::string::npos || all.find("again") == all.npos) {
    Log(LogLevel::kInfo, "test", "again");
    all += Drain(terminal.master());
  }
  EXPECT_THAT(all, HasSubstr(" info test: mmm"));
}

TEST_F(LogTest, TheLastLinesForATerminalOfAnotherUsersAreWritten) {
  Terminal terminal;
  terminal.Forbid();
  Log(LogLevel::kInfo, "test", "first");
  Log(LogLevel::kInfo, "test", "last");
  FlushLog(/*timeout_ns=*/INT64_MAX / 4);
  EXPECT_THAT(Drain(terminal.master()), AllOf(HasSubstr("test: first"), HasSubstr("test: last")));
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotMix) {
  testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([i] {
        const std::string message(200, static_cast<char>('a' + i));
        for (int n = 0; n < 50; ++n) Log(LogLevel::kInfo, "thread", message);
      });
    }
  }
  const std::string all = testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t begin = 0; begin < all.size(); ++lines) {
    const size_t end = all.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string line = all.substr(begin, end - begin);
    ASSERT_GT(line.size(), 200u);
    EXPECT_EQ(line.substr(line.size() - 200), std::string(200, line.back()));
    begin = end + 1;
  }
  EXPECT_EQ(lines, 200u);
}

}  // namespace
}  // namespace spccl
