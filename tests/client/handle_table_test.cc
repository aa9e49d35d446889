#include "client/handle_table.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace spccl::client {
namespace {

using ::testing::HasSubstr;

template <typename T>
void ExpectRefused(const absl::StatusOr<T>& result, absl::StatusCode code, const char* text) {
  EXPECT_EQ(result.status().code(), code);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
}

TEST(HandleTableTest, FindsWhatWasAdded) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  void* one = table.Add(std::make_shared<int>(1));
  void* two = table.Add(std::make_shared<int>(2));
  EXPECT_EQ(**table.Find(one), 1);
  EXPECT_EQ(**table.Find(two), 2);
  EXPECT_EQ(table.size(), 2u);
}

TEST(HandleTableTest, RefusesWhatWasRemovedAndNeverGivesItOutAgain) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  void* handle = table.Add(std::make_shared<int>(1));
  EXPECT_EQ(**table.Remove(handle), 1);
  ExpectRefused(table.Find(handle), absl::StatusCode::kFailedPrecondition, "was destroyed");
  ExpectRefused(table.Remove(handle), absl::StatusCode::kFailedPrecondition, "was destroyed");
  EXPECT_NE(table.Add(std::make_shared<int>(2)), handle);
}

TEST(HandleTableTest, RefusesWhatItNeverGaveOut) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  HandleTable<int> other(HandleKind::kStream, "other", 1);
  table.Add(std::make_shared<int>(1));
  int local;
  ExpectRefused(table.Find(nullptr), absl::StatusCode::kInvalidArgument, "thing is NULL");
  ExpectRefused(table.Find(&local), absl::StatusCode::kInvalidArgument, "not a thing");
  ExpectRefused(table.Find(other.Add(std::make_shared<int>(1))), absl::StatusCode::kInvalidArgument,
                "not a thing");
}

TEST(HandleTableTest, KnowsWhatItGaveOutAlsoAfterItsEnd) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  HandleTable<int> other(HandleKind::kStream, "other", 1);
  void* handle = table.Add(std::make_shared<int>(1));
  EXPECT_TRUE(table.IsOne(handle));
  EXPECT_TRUE(table.Remove(handle).ok());
  EXPECT_TRUE(table.IsOne(handle));
  int local;
  void* const never = static_cast<char*>(handle) + 16;
  for (const void* none : {static_cast<const void*>(nullptr), static_cast<const void*>(&local),
                           static_cast<const void*>(never),
                           static_cast<const void*>(other.Add(std::make_shared<int>(1)))}) {
    EXPECT_FALSE(table.IsOne(none));
  }
}

TEST(HandleTableTest, RemovesWhatMatches) {
  HandleTable<int> table(HandleKind::kComm, "thing", 1);
  void* one = table.Add(std::make_shared<int>(1));
  void* two = table.Add(std::make_shared<int>(2));
  table.RemoveIf([](int value) { return value == 1; });
  ExpectRefused(table.Find(one), absl::StatusCode::kFailedPrecondition, "was destroyed");
  EXPECT_EQ(**table.Find(two), 2);
}

TEST(HandleTableTest, TellsTheParentsHandles) {
  HandleTable<int> parent(HandleKind::kComm, "thing", 1);
  void* handle = parent.Add(std::make_shared<int>(1));
  HandleTable<int> child(HandleKind::kComm, "thing", parent.next());
  ExpectRefused(child.Find(handle), absl::StatusCode::kFailedPrecondition, "before fork()");
  EXPECT_NE(child.Add(std::make_shared<int>(2)), handle);
}

}  // namespace
}  // namespace spccl::client
