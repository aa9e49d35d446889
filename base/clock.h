// What time it is, for durations.
#pragma once

#include <cstdint>
#include <ctime>

namespace spccl {

inline int64_t MonotonicNanos() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Of the calling thread: how long it has run on a processor.
inline int64_t ThreadCpuNanos() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace spccl
