// What a daemon's gRPC health service says (grpc.health.v1, which has no stub in the packages).
#pragma once

#include <cstdint>
#include <string>

namespace spccl::testing {

enum class Health { kNoAnswer = 0, kServing = 1, kNotServing = 2 };

// Of the whole server; `control_socket`: the path of control.sock.
Health AskHealth(const std::string& control_socket);
// Asks until it says so; false after `timeout_ms`.
bool HealthBecomes(const std::string& control_socket, Health wanted, int64_t timeout_ms = 30'000);

}  // namespace spccl::testing
