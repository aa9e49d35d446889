#include "base/cpu_slice.h"

#include <sched.h>
#include <sys/resource.h>

#include <thread>

#include "gtest/gtest.h"

namespace spccl {
namespace {

TEST(CpuSliceTest, LeavesPolicyAndNicenessAlone) {
  // A thread of its own: what is raised cannot be lowered again without a privilege.
  std::thread([] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 3), 0);
    for (const int64_t slice_ns : {kShortestCpuSliceNs, kLongestCpuSliceNs}) {
      EXPECT_TRUE(SetCpuSlice(slice_ns));
      EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
      EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 3);
    }
  }).join();
}

TEST(CpuSliceTest, KeepsABatchThreadOne) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
    EXPECT_TRUE(SetCpuSlice(kShortestCpuSliceNs));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace spccl
