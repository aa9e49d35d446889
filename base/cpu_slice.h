// How long the kernel lets a thread compute before it looks who else waits: a thread's slice, in
// the scheduler of Linux since 6.6 (EEVDF: Stoica and Abdel-Wahab, 1995), settable since 6.12. Who
// wakes up takes the core at once from a thread whose slice is longer than its own, and else waits
// until that one's has passed, up to several milliseconds. What a thread gets of a core in the long
// run is the same with any slice.
#pragma once

#include <cstdint>

namespace spccl {

inline constexpr int64_t kShortestCpuSliceNs = 100'000;

// Of the calling thread; needs no privilege. False: the kernel refused. Older kernels take it and
// do nothing. Threads of a real-time or deadline policy are left as they are.
bool SetCpuSlice(int64_t slice_ns);

}  // namespace spccl
