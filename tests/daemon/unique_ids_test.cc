#include "daemon/unique_ids.h"

#include <set>

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

TEST(UniqueIdsTest, AUserWhoAsksForManyLosesOnlyTheirOwn) {
  UniqueIds ids(kBoot);
  const UniqueIdBytes others = *ids.Issue(kUid + 1), first = *ids.Issue(kUid);
  for (size_t i = 0; i < UniqueIds::kKeptPerUid; ++i) ASSERT_THAT(ids.Issue(kUid), IsOk());
  EXPECT_FALSE(ids.Find(first, kUid).ok());
  EXPECT_THAT(ids.Find(others, kUid + 1), IsOk());
}

}  // namespace
}  // namespace spccl::daemon
