#include "base/log.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace spccl {
namespace {

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
