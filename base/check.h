// Checks of our own invariants: a failed one ends the process. Apart from status.h, so that the
// kernels need no library.
#pragma once

namespace spccl {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace spccl

#define SPCCL_CHECK(condition)                  \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::spccl::CheckFailed(#condition, __FILE__, __LINE__))
