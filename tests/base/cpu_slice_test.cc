#include "base/cpu_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "gtest/gtest.h"

namespace spccl {
namespace {

// The calling thread's, as the kernel tells it; 0: it does not, as before Linux 6.12. In whole
// words and not by <linux/sched/types.h>, which some releases' <sched.h> contradicts.
uint64_t CpuSlice() {
  uint64_t attributes[6] = {};  // sched_attr of 48 bytes; sched_runtime is its fourth word
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0), 0);
  return attributes[3];
}

TEST(CpuSliceTest, TheKernelHasTakenIt) {
  std::thread([] {
    for (const int64_t slice_ns : {kShortestCpuSliceNs, 7 * kShortestCpuSliceNs}) {
      ASSERT_TRUE(SetCpuSlice(slice_ns));
      const uint64_t told = CpuSlice();
      if (told == 0) GTEST_SKIP() << "this kernel does not tell a thread's slice";
      EXPECT_EQ(told, static_cast<uint64_t>(slice_ns));
    }
  }).join();
}

TEST(CpuSliceTest, LeavesPolicyAndNicenessAlone) {
  // A thread of its own: what is raised cannot be lowered again without a privilege.
  std::thread([] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 3), 0);
    EXPECT_TRUE(SetCpuSlice(kShortestCpuSliceNs));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 3);
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
