// How much of a property test's inputs are drawn.
#pragma once

#include <algorithm>

namespace spccl {

// For code of one thread, or tests that say why. ThreadSanitizer makes it about ten times as slow,
// and what it could find there the first inputs show as well as all that the other builds draw.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kThinning = 8;
#else
inline constexpr int kThinning = 1;
#endif

// So many of `all` cases, at least one.
constexpr int Thinned(int all) {
  return std::max(1, all / kThinning);
}

}  // namespace spccl
