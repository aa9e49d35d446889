#include "daemon/kept_descriptors.h"

#include <algorithm>

#include "daemon/fd_closer.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {

rlim_t DescriptorsToKeep(rlim_t of) {
  const rlim_t kept = std::min<rlim_t>(FdCloser::kMostAtOnce + shm::kMostAPacket, of / 4);
  return kept < shm::kMostAPacket ? 0 : kept;
}

KeptDescriptors::KeptDescriptors() {
  if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) before_ = {};
  if (before_.rlim_cur == before_.rlim_max) return;
  const rlimit all{.rlim_cur = before_.rlim_max, .rlim_max = before_.rlim_max};
  (void)::setrlimit(RLIMIT_NOFILE, &all);
}

KeptDescriptors::~KeptDescriptors() {
  if (before_.rlim_cur != before_.rlim_max) (void)::setrlimit(RLIMIT_NOFILE, &before_);
}

}  // namespace spccl::daemon
