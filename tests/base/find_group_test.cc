#include "base/find_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

namespace spccl {
namespace {

using ::testing::HasSubstr;

// A group whose members take so many bytes.
GroupLookup OneOf(size_t bytes) {
  return [bytes](const char*, group* entry, char*, size_t room, group** found) {
    if (room < bytes) return ERANGE;
    entry->gr_gid = 77;
    *found = entry;
    return 0;
  };
}

TEST(FindGroupTest, FindsThoseOfThisHost) {
  EXPECT_EQ(FindGroup("root").value(), gid_t{0});
  EXPECT_EQ(FindGroup("no-such-group-here").value(), std::nullopt);
}

TEST(FindGroupTest, AGroupMayHaveManyMembers) {
  EXPECT_EQ(FindGroup("many", OneOf(16 << 20)).value(), gid_t{77});
  const absl::Status too_many = FindGroup("too-many", OneOf((16 << 20) + 1)).status();
  EXPECT_THAT(std::string(too_many.message()), HasSubstr("look up the group too-many"));
}

TEST(FindGroupTest, ASignalIsNoFailure) {
  bool interrupted = false;
  const GroupLookup whole = OneOf(0);
  const auto lookup = [&](const char* name, group* entry, char* buffer, size_t room,
                          group** found) {
    if (!std::exchange(interrupted, true)) return EINTR;
    return whole(name, entry, buffer, room, found);
  };
  EXPECT_EQ(FindGroup("any", lookup).value(), gid_t{77});
}

TEST(FindGroupTest, AnotherErrorIsSaid) {
  const absl::Status status =
      FindGroup("any", [](const char*, group*, char*, size_t, group**) { return EIO; }).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("look up the group any: "));
}

}  // namespace
}  // namespace spccl
