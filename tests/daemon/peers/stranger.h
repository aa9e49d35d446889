// Connects to where a PeerNet listens, and says nothing.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "daemon/peers/address.h"

namespace spccl::daemon::peers {

// `address`: one of 127.0.0.1's or of ::1's.
inline UniqueFd ConnectStranger(const std::string& address) {
  const Address parsed = *ParseAddress(address);
  const bool is_v6 = parsed.host == "::1";
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  v4.sin_port = v6.sin6_port = htons(parsed.port);
  UniqueFd fd(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const to =
      is_v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  SPCCL_CHECK(::connect(fd.get(), to, is_v6 ? sizeof v6 : sizeof v4) == 0);
  return fd;
}

// Whether it is hung up on within the time, whatever it is told before.
inline bool IsCutOff(const UniqueFd& fd, int timeout_ms = 30'000) {
  char bytes[4096];
  for (pollfd query{.fd = fd.get(), .events = POLLIN, .revents = 0};
       ::poll(&query, 1, timeout_ms) == 1;) {
    if (::read(fd.get(), bytes, sizeof bytes) <= 0) return true;
  }
  return false;
}

}  // namespace spccl::daemon::peers
