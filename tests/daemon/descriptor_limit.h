// Another limit of descriptors (RLIMIT_NOFILE) for a while.
#pragma once

#include <sys/resource.h>

#include "base/status.h"

namespace spccl::daemon {

class DescriptorLimit {
 public:
  // Not above what the process may open at all; `hard`: that, too, which only root can undo.
  explicit DescriptorLimit(rlim_t most, bool hard = false) {
    SPCCL_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit now{.rlim_cur = most, .rlim_max = hard ? most : before_.rlim_max};
    SPCCL_CHECK(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_;
};

}  // namespace spccl::daemon
