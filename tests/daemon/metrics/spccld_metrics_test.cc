// The real spccld's metrics: where they are, and who may see them. Their contents against
// Prometheus: prometheus_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/metrics/http_client.h"
#include "tests/daemon/metrics/parse.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon::metrics {
namespace {

using ::spccl::testing::FormComm;
using ::spccl::testing::IsOk;
using ::spccl::testing::SpawnedDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kPatienceMs = 30'000;
constexpr char kFine[] = "HTTP/1.1 200 OK\r\n";

std::unique_ptr<SpawnedDaemon> StartDaemon(std::vector<std::string> flags = {}) {
  auto daemon = SpawnedDaemon::Start(std::move(flags));
  EXPECT_THAT(daemon, IsOk());
  return daemon.ok() ? *std::move(daemon) : nullptr;
}

std::string SocketOf(const SpawnedDaemon& daemon) {
  return "unix:" + daemon.runtime_dir() + "/metrics.sock";
}

// What a process of another user gets.
std::string GetAs(uid_t uid, const std::string& address, const std::string& path) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(1);
    const std::string answer = Get(address, path);
    ::_exit(::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size())
                ? 0
                : 1);
  }
  ::close(ends[1]);
  std::string answer;
  char piece[4096];
  for (ssize_t bytes; (bytes = ::read(ends[0], piece, sizeof piece)) > 0;) {
    answer.append(piece, static_cast<size_t>(bytes));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return answer;
}

TEST(SpccldMetricsTest, ByDefaultTheyAreInTheRuntimeFolder) {
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  const auto ranks = FormComm(daemon->socket_path(), 2);
  ASSERT_THAT(ranks, IsOk());
  const std::string answer = Get(SocketOf(*daemon), "/metrics");
  ASSERT_THAT(answer, StartsWith(kFine));
  const Parsed parsed = Parse(BodyOf(answer));
  EXPECT_EQ(parsed.Of("spccl_sessions"), 2);
  EXPECT_EQ(parsed.Of("spccl_communicators{state=ready}"), 1);
  EXPECT_EQ(parsed.Of("spccl_healthy"), 1);
  daemon->Signal(SIGTERM);
  ASSERT_THAT(daemon->Wait(kPatienceMs), IsOk());
  EXPECT_NE(::access((daemon->runtime_dir() + "/metrics.sock").c_str(), F_OK), 0);
}

TEST(SpccldMetricsTest, OtherUsersSeeNothingThere) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const auto daemon = StartDaemon();
  ASSERT_NE(daemon, nullptr);
  ASSERT_EQ(::chmod(daemon->runtime_dir().c_str(), 0755), 0);
  constexpr uid_t kNobody = 65534;
  EXPECT_THAT(GetAs(kNobody, SocketOf(*daemon), "/metrics"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(GetAs(0, SocketOf(*daemon), "/metrics"), StartsWith(kFine));
}

TEST(SpccldMetricsTest, AMemberOfTheAdminGroupSeesThem) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kAdmin = 4242;  // also the group's number
  const auto daemon = StartDaemon({"--admin-group", "4242"});
  ASSERT_NE(daemon, nullptr);
  ASSERT_EQ(::chmod(daemon->runtime_dir().c_str(), 0755), 0);
  EXPECT_THAT(GetAs(kAdmin, SocketOf(*daemon), "/metrics"), StartsWith(kFine));
}

TEST(SpccldMetricsTest, WhereTheFlagSays) {
  const auto daemon = StartDaemon({"--metrics-listen", "127.0.0.1:0"});
  ASSERT_NE(daemon, nullptr);
  const std::string log = daemon->ReadLog();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(log, found, std::regex("serving metrics address=\"([^\"]+)\"")));
  EXPECT_THAT(Get(found[1], "/metrics"), StartsWith(kFine));
  EXPECT_THAT(Get(found[1], "/healthz"), StartsWith(kFine));
  EXPECT_NE(::access((daemon->runtime_dir() + "/metrics.sock").c_str(), F_OK), 0);
}

TEST(SpccldMetricsTest, NowhereWhereTheFlagIsEmpty) {
  const auto daemon = StartDaemon({"--metrics-listen", ""});
  ASSERT_NE(daemon, nullptr);
  EXPECT_THAT(daemon->ReadLog(), Not(HasSubstr("serving metrics")));
  EXPECT_NE(::access((daemon->runtime_dir() + "/metrics.sock").c_str(), F_OK), 0);
}

TEST(SpccldMetricsTest, OtherMachinesAreLetInWithAWarning) {
  const auto daemon = StartDaemon({"--metrics-listen", "0.0.0.0:0"});
  ASSERT_NE(daemon, nullptr);
  EXPECT_THAT(daemon->ReadLog(),
              HasSubstr("warning metrics: serving metrics to other machines, to whoever asks"));
}

}  // namespace
}  // namespace spccl::daemon::metrics
