// Whether the kernel can forbid to pass descriptors to a UNIX socket: SO_PASSRIGHTS, Linux 6.16.
#pragma once

#include <sys/socket.h>

namespace spccl::testing {

inline constexpr int kPassRights = 83;  // which the headers may not know yet

inline bool CanForbidToPass(int unix_socket) {
  int passes = 0;
  socklen_t bytes = sizeof passes;
  return ::getsockopt(unix_socket, SOL_SOCKET, kPassRights, &passes, &bytes) == 0;
}

}  // namespace spccl::testing
