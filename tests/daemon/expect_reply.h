// What a daemon's reply is expected to be.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "proto/shm/session.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {

template <typename Matcher>
void ExpectRefusal(const absl::StatusOr<shm::Reply>& reply, shm::Result result,
                   const Matcher& message) {
  ASSERT_THAT(reply, spccl::testing::IsOk());
  EXPECT_EQ(reply->result, static_cast<uint32_t>(result)) << reply->message;
  EXPECT_THAT(std::string(shm::TextOf(reply->message)), message);
}

inline void ExpectSuccess(const absl::StatusOr<shm::Reply>& reply) {
  ASSERT_THAT(reply, spccl::testing::IsOk());
  EXPECT_EQ(reply->result, 0u) << reply->message;
}

}  // namespace spccl::daemon
