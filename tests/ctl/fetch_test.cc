#include "ctl/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace spccl::ctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFetchMs = 1'000'000;

TEST(FetchTest, OutputOfPrograms) {
  EXPECT_EQ(OutputOf({"sh", "-c", "echo out; echo err >&2"}, {}).value(), "out\nerr\n");
  EXPECT_EQ(OutputOf({"cat"}, {}).value(), "");  // it has no input
  EXPECT_TRUE(absl::IsNotFound(OutputOf({"no-such-program-here"}, {}).status()));
  EXPECT_EQ(OutputOf({"yes"}, {.bytes = 100}).value().size(), 100u);
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(OutputOf({"sleep", "1000"}, {.nanos = 50 * kFetchMs}).status()));
}

TEST(FetchTest, HowProgramsEnd) {
  const auto ended = RunProgram({"sh", "-c", "echo no; exec >&- 2>&-; sleep 0.05; exit 3"}, {});
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->output, "no\n");
  EXPECT_EQ(ended->exit_code, 3);
  EXPECT_EQ(RunProgram({"true"}, {}).value().exit_code, 0);
  EXPECT_EQ(RunProgram({"yes"}, {.bytes = 100}).value().exit_code, -1);
}

// Answers one connection with the given text, to whatever is asked.
class OneAnswer {
 public:
  OneAnswer(const std::string& path, const std::string& text)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
    thread_ = std::thread([this, text] {
      const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char request[1024];
      const ssize_t got = ::read(client.get(), request, sizeof request);
      if (got > 0) request_.assign(request, static_cast<size_t>(got));
      EXPECT_EQ(::write(client.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    });
  }
  ~OneAnswer() { thread_.join(); }

 private:
  const UniqueFd socket_;
  std::string request_;
  std::thread thread_;
};

TEST(FetchTest, Metrics) {
  const spccl::testing::TempFolder folder;
  {
    const OneAnswer server(folder.path() + "/metrics.sock", "HTTP/1.0 200 OK\r\nA: b\r\n\r\nx 1\n");
    EXPECT_EQ(FetchMetrics("unix", folder.path(), {}).value(), "x 1\n");
  }
  {
    const OneAnswer server(folder.path() + "/other", "HTTP/1.0 503 No\r\n\r\nstuck");
    EXPECT_THAT(
        std::string(FetchMetrics("unix:" + folder.path() + "/other", "", {}).status().message()),
        HasSubstr("503"));
  }
  EXPECT_TRUE(absl::IsUnavailable(FetchMetrics("unix", "/nowhere", {}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(FetchMetrics("", "", {}).status()));
  const absl::Status any_port = FetchMetrics("127.0.0.1:0", "", {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(any_port));
  EXPECT_THAT(std::string(any_port.message()),
              HasSubstr("metrics_listen is 127.0.0.1:0: the daemon took a free port"));
  EXPECT_TRUE(absl::IsInvalidArgument(FetchMetrics("x:1", "", {}).status()));
}

}  // namespace
}  // namespace spccl::ctl
