// A client of the daemon that a test has in its own process.
#pragma once

#include <utility>

#include "gmock/gmock.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {

inline testing::RawClient Open(testing::DaemonEnv& env) {
  auto client = testing::RawClient::Open(env.socket_path());
  EXPECT_THAT(client, testing::IsOk());
  return *std::move(client);
}

}  // namespace spccl::daemon
