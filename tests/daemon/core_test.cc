#include "daemon/core.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/result.h"
#include "tests/support/daemon_env.h"
#include "tests/support/raw_client.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::AllReduceSlot;
using ::spccl::testing::DaemonEnv;
using ::spccl::testing::FormComm;
using ::spccl::testing::RawBuffer;
using ::spccl::testing::RawClient;
using ::spccl::testing::RawRank;
using ::testing::HasSubstr;

#define ASSERT_OK(expression)                    \
  do {                                           \
    const absl::Status ok_status = (expression); \
    ASSERT_TRUE(ok_status.ok()) << ok_status;    \
  } while (false)

// Every rank all-reduces `count` floats, rank r's being r + 1 + i % 7, and checks the sums.
void AllReduceOnce(std::vector<RawRank>& ranks, std::vector<RawBuffer>& buffers, uint64_t count) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (uint64_t i = 0; i < count; ++i) buffers[r].as<float>()[i] = 1.0f + r + i % 7;
    ASSERT_TRUE(ranks[r].client.Push(AllReduceSlot(ranks[r], buffers[r], count, 0, count * 4)));
  }
  const float base = static_cast<float>(ranks.size() * (ranks.size() + 1)) / 2;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto completion = ranks[r].client.AwaitCompletion();
    ASSERT_TRUE(completion.has_value());
    ASSERT_EQ(completion->result, 0u) << completion->message;
    EXPECT_EQ(completion->ticket, ranks[r].client.next_ticket - 1);
    EXPECT_EQ(completion->comm_id, ranks[r].handle);
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(buffers[r].as<float>(count * 4)[i], base + ranks.size() * (i % 7)) << i;
    }
  }
}

class AllReduceTest : public ::testing::TestWithParam<std::pair<uint32_t, uint64_t>> {};

TEST_P(AllReduceTest, SumsOverRanks) {
  const auto [rank_count, count] = GetParam();
  DaemonEnv env;
  auto ranks = FormComm(env.socket_path(), rank_count);
  ASSERT_OK(ranks.status());
  std::vector<RawBuffer> buffers;
  for (RawRank& rank : *ranks) {
    auto buffer = rank.client.Allocate(count * 8);
    ASSERT_OK(buffer.status());
    buffers.push_back(*std::move(buffer));
  }
  for (int repeat = 0; repeat < 3; ++repeat) AllReduceOnce(*ranks, buffers, count);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduceTest,
                         ::testing::Values(std::pair(1u, 10ul), std::pair(2u, 2ul),
                                           std::pair(4u, 1000ul), std::pair(2u, 1ul << 20),
                                           std::pair(5u, 300'001ul)));

}  // namespace
}  // namespace spccl::daemon
