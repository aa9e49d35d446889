// From the bytes of a packet to a request that is well-formed. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

// Checks what can be checked without knowing the session: size, magic, type, a request id, the
// number of descriptors that the type wants, terminated texts. An error means that the other side
// does not speak the protocol; its session ends. `fds` descriptors came beside the packet; nullopt:
// some were lost on the way, nobody knows how many.
absl::StatusOr<shm::Request> ParseRequest(std::span<const std::byte> packet,
                                          std::optional<size_t> fds);

}  // namespace spccl::daemon
