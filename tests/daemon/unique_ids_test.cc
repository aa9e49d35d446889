#include "daemon/unique_ids.h"

#include <algorithm>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_test.h"

namespace spccl::daemon {
namespace {

using ::spccl::testing::FailsWith;
using ::spccl::testing::IsOk;
using ::testing::HasSubstr;

constexpr uint64_t kBoot = 0x1234;
constexpr uid_t kUid = 1000;

TEST(UniqueIdsTest, FindsWhatItIssued) {
  UniqueIds ids(kBoot);
  const auto id = ids.Issue(kUid);
  ASSERT_THAT(id, IsOk());
  EXPECT_EQ(*ids.Find(*id, kUid), 0u);
  ids.SetForming(*id, 5);
  EXPECT_EQ(*ids.Find(*id, kUid), 5u);
  ids.UseUp(*id, absl::FailedPreconditionError("used"));
  EXPECT_THAT(ids.Find(*id, kUid),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("used")));
}

TEST(UniqueIdsTest, NeverTheSameTwice) {
  UniqueIds ids(kBoot);
  std::set<UniqueIdBytes> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(*ids.Issue(kUid)).second);
}

TEST(UniqueIdsTest, RefusesWhatItDidNotIssue) {
  UniqueIds ids(kBoot);
  UniqueIds before_the_restart(kBoot + 1);
  const UniqueIdBytes id = *ids.Issue(kUid);
  EXPECT_THAT(ids.Find(UniqueIdBytes{}, kUid),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("spcclGetUniqueId")));
  EXPECT_THAT(ids.Find(*before_the_restart.Issue(kUid), kUid),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("restarted")));
  EXPECT_THAT(ids.Find(id, kUid + 1),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("not known")));
  UniqueIdBytes guessed = id;
  guessed[16] ^= 1;
  EXPECT_THAT(ids.Find(guessed, kUid),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("not known")));
}

TEST(UniqueIdsTest, SaysWhereItsDaemonIs) {
  UniqueIds ids(kBoot, "node-a.cluster:7411");
  const UniqueIdBytes id = *ids.Issue(kUid);
  const auto parts = ParseUniqueId(id);
  ASSERT_THAT(parts, IsOk());
  EXPECT_EQ(parts->boot_id, kBoot);
  EXPECT_EQ(parts->address, "node-a.cluster:7411");
  EXPECT_NE(parts->key, ParseUniqueId(*ids.Issue(kUid))->key);
  EXPECT_THAT(ids.Find(id, kUid), IsOk());
  UniqueIdBytes endless = id;
  endless.fill('x');
  std::copy_n(id.begin(), 8, endless.begin());
  EXPECT_THAT(ParseUniqueId(endless),
              FailsWith(absl::StatusCode::kInvalidArgument, HasSubstr("spcclGetUniqueId")));
}

TEST(UniqueIdsTest, RefusesAnAddressThatDoesNotFit) {
  UniqueIds longest(kBoot, std::string(UniqueIds::kLongestAddress, 'h'));
  EXPECT_EQ(ParseUniqueId(*longest.Issue(kUid))->address.size(), UniqueIds::kLongestAddress);
  UniqueIds longer(kBoot, std::string(UniqueIds::kLongestAddress + 1, 'h'));
  EXPECT_THAT(longer.Issue(kUid),
              FailsWith(absl::StatusCode::kFailedPrecondition, HasSubstr("longer than")));
}

TEST(UniqueIdsTest, AUserWhoAsksForManyLosesOnlyTheirOwn) {
  UniqueIds ids(kBoot);
  const UniqueIdBytes others = *ids.Issue(kUid + 1), first = *ids.Issue(kUid);
  for (size_t i = 0; i < UniqueIds::kKeptPerUid; ++i) ASSERT_THAT(ids.Issue(kUid), IsOk());
  EXPECT_FALSE(ids.Find(first, kUid).ok());
  EXPECT_THAT(ids.Find(others, kUid + 1), IsOk());
}

}  // namespace
}  // namespace spccl::daemon
