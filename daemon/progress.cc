#include "daemon/progress.h"

#include <algorithm>

namespace spccl::daemon {

Progress JudgeProgress(const ProgressAges& ages, int64_t limit_ns) {
  Progress progress;
  progress.age_ns = std::max({ages.core_ns, ages.slice_ns, ages.due_ns});
  progress.healthy = progress.age_ns < limit_ns;
  if (ages.due_ns >= limit_ns) progress.detail = "no channel thread takes the work that is due";
  if (ages.slice_ns >= limit_ns) progress.detail = "a channel thread makes no progress";
  if (ages.core_ns >= limit_ns) progress.detail = "the core thread makes no progress";
  return progress;
}

}  // namespace spccl::daemon
