#include "base/unique_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace spccl {
namespace {

bool IsOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

int OpenNull() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST(UniqueFdTest, ClosesAtTheEndOfItsLife) {
  int raw;
  {
    UniqueFd fd(OpenNull());
    raw = fd.get();
    EXPECT_TRUE(fd.valid());
    EXPECT_TRUE(IsOpen(raw));
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(UniqueFdTest, EmptyIsNotValid) {
  UniqueFd fd;
  EXPECT_FALSE(fd.valid());
  EXPECT_EQ(fd.get(), -1);
}

TEST(UniqueFdTest, MoveHandsOver) {
  UniqueFd first(OpenNull());
  const int raw = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): what the test is about
  EXPECT_EQ(second.get(), raw);
  EXPECT_TRUE(IsOpen(raw));
}

TEST(UniqueFdTest, MoveAssignmentClosesWhatWasOwned) {
  UniqueFd first(OpenNull());
  UniqueFd second(OpenNull());
  const int dropped = second.get();
  const int kept = first.get();
  second = std::move(first);
  EXPECT_FALSE(IsOpen(dropped));
  EXPECT_TRUE(IsOpen(kept));
  EXPECT_EQ(second.get(), kept);
}

TEST(UniqueFdTest, MoveToItselfKeepsTheDescriptor) {
  UniqueFd fd(OpenNull());
  const int raw = fd.get();
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_EQ(fd.get(), raw);
  EXPECT_TRUE(IsOpen(raw));
}

TEST(UniqueFdTest, ReleaseGivesUpOwnership) {
  int raw;
  {
    UniqueFd fd(OpenNull());
    raw = fd.Release();
    EXPECT_FALSE(fd.valid());
  }
  EXPECT_TRUE(IsOpen(raw));
  ::close(raw);
}

TEST(UniqueFdTest, ResetClosesTheOldOne) {
  UniqueFd fd(OpenNull());
  const int old = fd.get();
  const int next = OpenNull();
  fd.Reset(next);
  EXPECT_FALSE(IsOpen(old));
  EXPECT_EQ(fd.get(), next);
  fd.Reset();
  EXPECT_FALSE(IsOpen(next));
}

}  // namespace
}  // namespace spccl
