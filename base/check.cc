#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace spccl {

void CheckFailed(const char* condition, const char* file, int line) {
  FlushLog();
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace spccl
