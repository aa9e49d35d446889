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

}  // namespace

bool SetCpuSlice(int64_t slice_ns) {
  SchedAttr attr{};
  if (::syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0) return false;
  if (attr.policy != SCHED_OTHER && attr.policy != SCHED_BATCH) return true;
  attr.size = sizeof attr;
  attr.runtime = static_cast<uint64_t>(slice_ns);
  return ::syscall(SYS_sched_setattr, 0, &attr, 0) == 0;
}

}  // namespace spccl
