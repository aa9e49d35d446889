// Until when a lock is waited for, by a clock that nobody sets.
#pragma once

#include <chrono>

namespace spccl {

// ThreadSanitizer does not see that a lock is held which was waited for by another clock than the
// system's.
#ifdef __SANITIZE_THREAD__
using LockClock = std::chrono::system_clock;
#else
using LockClock = std::chrono::steady_clock;
#endif

inline std::chrono::time_point<LockClock> LockDeadline(std::chrono::nanoseconds timeout) {
  return LockClock::now() + timeout;
}

}  // namespace spccl
