// Where a daemon listens or is dialed: HOST:PORT, with an IPv6 address in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace spccl::daemon::peers {

struct Address {
  std::string host;  // a name, or an IP address without brackets
  uint16_t port = 0;

  std::string text() const;  // as ParseAddress reads it
};

// InvalidArgument: what was found and what was expected.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// An address of this machine that no other can reach: 127.0.0.0/8, ::1, or the name "localhost".
bool IsLoopback(std::string_view host);
// 0.0.0.0 or ::, all addresses of this machine.
bool IsWildcard(std::string_view host);

// A host for people, who may know several by one name: "node2 (10.0.0.2:4710)"; only the address
// where no name is known.
std::string DisplayName(const std::string& name, const std::string& address);

}  // namespace spccl::daemon::peers
