#include "daemon/progress.h"

#include "gtest/gtest.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kLimit = 100;

TEST(ProgressTest, IdleIsHealthy) {
  const Progress progress = JudgeProgress({.core_ns = 99, .slice_ns = 0, .due_ns = 0}, kLimit);
  EXPECT_TRUE(progress.healthy);
  EXPECT_EQ(progress.age_ns, 99);
  EXPECT_EQ(progress.detail, "");
}

TEST(ProgressTest, EachPartThatIsStuckIsNamed) {
  const Progress core = JudgeProgress({.core_ns = 100, .slice_ns = 0, .due_ns = 0}, kLimit);
  EXPECT_FALSE(core.healthy);
  EXPECT_EQ(core.detail, "the core thread makes no progress");
  const Progress slice = JudgeProgress({.core_ns = 1, .slice_ns = 100, .due_ns = 0}, kLimit);
  EXPECT_FALSE(slice.healthy);
  EXPECT_EQ(slice.detail, "a channel thread makes no progress");
  const Progress due = JudgeProgress({.core_ns = 1, .slice_ns = 2, .due_ns = 500}, kLimit);
  EXPECT_FALSE(due.healthy);
  EXPECT_EQ(due.age_ns, 500);
  EXPECT_EQ(due.detail, "no channel thread takes the work that is due");
}

}  // namespace
}  // namespace spccl::daemon
