#include "base/cpu_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace spccl {
namespace {

// The kernel's sched_attr, as of its first version: headers differ in whether they have it, and in
// whether it may be included beside <sched.h>.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // of an ordinary thread: its slice
  uint64_t deadline;
  uint64_t period;
};

bool GetAttr(SchedAttr* attr) {
  if (::syscall(SYS_sched_getattr, 0, attr, sizeof *attr, 0) != 0) return false;
  attr->size = sizeof *attr;
  return true;
}

bool KnowsSlices(const SchedAttr& attr) {
  return attr.policy == SCHED_OTHER || attr.policy == SCHED_BATCH;
}

bool SetAttr(SchedAttr attr, int64_t slice_ns) {
  attr.runtime = static_cast<uint64_t>(slice_ns);
  return ::syscall(SYS_sched_setattr, 0, &attr, 0) == 0;
}

}  // namespace

bool SetCpuSlice(int64_t slice_ns) {
  SchedAttr attr{};
  if (!GetAttr(&attr)) return false;
  return !KnowsSlices(attr) || SetAttr(attr, slice_ns);
}

ShortCpuSlice::ShortCpuSlice() {
  SchedAttr attr{};
  // Older kernels tell 0.
  if (!GetAttr(&attr) || !KnowsSlices(attr) || attr.runtime <= kShortestCpuSliceNs) return;
  if (SetAttr(attr, kShortestCpuSliceNs)) before_ns_ = static_cast<int64_t>(attr.runtime);
}

ShortCpuSlice::~ShortCpuSlice() {
  if (before_ns_ != 0) (void)SetCpuSlice(before_ns_);
}

}  // namespace spccl
