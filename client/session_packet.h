// What may be wrong with a packet of the daemon's.
#pragma once

#include "absl/status/status.h"
#include "proto/shm/session.h"
#include "proto/shm/socket.h"

namespace spccl::client {

inline absl::Status OutOfDescriptors() {
  return absl::ResourceExhaustedError(
      "this process may open no more file descriptors (RLIMIT_NOFILE, ulimit -n): those that the "
      "daemon passed are lost");
}

// But for descriptors that were lost.
inline bool IsWellFormed(const shm::Packet& packet, const shm::Reply& reply) {
  return packet.bytes == sizeof reply && (!packet.truncated || packet.lost_fds) &&
         reply.magic == shm::kSessionMagic;
}

}  // namespace spccl::client
