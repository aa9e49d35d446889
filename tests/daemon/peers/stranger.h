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

// `address`: one of 127.0.0.1's.
inline UniqueFd ConnectStranger(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(ParseAddress(address)->port);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SPCCL_CHECK(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
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
