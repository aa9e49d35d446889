// What one user leaves of a daemon to others.
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "proto/shm/socket.h"
#include "tests/daemon/expect_reply.h"
#include "tests/daemon/other_user.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::spccl::testing::RawClient;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kConnectNs = 10'000'000'000;

TEST(CoreUsersTest, OneUserLeavesSessionsToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  CoreOptions options;
  options.limits.sessions = 8;
  DaemonEnv env(options);
  LetOthersIn(env);
  std::vector<RawClient> clients;
  for (int i = 0; i < 6; ++i) {
    auto client = OpenAs(kUser, env.socket_path());
    ASSERT_THAT(client, IsOk());
    clients.push_back(*std::move(client));
  }
  EXPECT_THAT(OpenAs(kUser, env.socket_path()),
              FailsWith(absl::StatusCode::kInternal, AllOf(HasSubstr("uid 65534 has 6 sessions"),
                                                           HasSubstr("limits.sessions"))));
  EXPECT_THAT(OpenAs(kOther, env.socket_path()), IsOk());
  EXPECT_THAT(RawClient::Open(env.socket_path()), IsOk());
}

// Those that wait to be told that they are too many take no room from others.
TEST(CoreUsersTest, WhoIsRefusedTakesNobodysRoom) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  CoreOptions options;
  options.limits.sessions = 8;
  DaemonEnv env(options);
  LetOthersIn(env);
  std::vector<RawClient> clients;
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 6; ++i) clients.push_back(OpenAs(kUser, env.socket_path()).value());
  for (int i = 0; i < 100; ++i) {
    silent.push_back(
        As(kUser, [&] { return shm::ConnectSession(env.socket_path(), kConnectNs); }).value());
  }
  for (const uid_t uid : {kOther, ::geteuid()}) {
    clients.push_back(OpenAs(uid, env.socket_path()).value());
  }
  EXPECT_THAT(OpenAs(kOther, env.socket_path()),
              FailsWith(absl::StatusCode::kInternal, HasSubstr("its limit (limits.sessions)")));
}

TEST(CoreUsersTest, OneUserLeavesCommunicatorsToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  CoreOptions options;
  options.limits.communicators = 4;
  DaemonEnv env(options);
  LetOthersIn(env);
  auto client = OpenAs(kUser, env.socket_path()), other = OpenAs(kOther, env.socket_path());
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(other, IsOk());
  for (int i = 0; i < 3; ++i) {
    ExpectSuccess(client->Call(client->MakeCommInit(*client->UniqueId(), 1, 0)));
  }
  ExpectRefusal(
      client->Call(client->MakeCommInit(*client->UniqueId(), 1, 0)), shm::Result::kSystemError,
      AllOf(HasSubstr("uid 65534 has 3 communicators"), HasSubstr("limits.communicators")));
  ExpectSuccess(other->Call(other->MakeCommInit(*other->UniqueId(), 1, 0)));
}

}  // namespace
}  // namespace spccl::daemon
