// A socket whose closing waits: TCP, with data that nobody reads, and SO_LINGER.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {

struct LingeringSocket {
  UniqueFd socket;
  UniqueFd listener, reader;  // once these are closed, nothing waits any more
};

inline LingeringSocket MakeLingeringSocket() {
  LingeringSocket made;
  made.listener.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  constexpr int kReaderTakes = 8192, kSenderTakes = 1 << 20;
  SPCCL_CHECK(::setsockopt(made.listener.get(), SOL_SOCKET, SO_RCVBUF, &kReaderTakes,
                           sizeof kReaderTakes) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  SPCCL_CHECK(::bind(made.listener.get(), generic, bytes) == 0);
  SPCCL_CHECK(::listen(made.listener.get(), 1) == 0);
  SPCCL_CHECK(::getsockname(made.listener.get(), generic, &bytes) == 0);
  made.socket.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SPCCL_CHECK(::setsockopt(made.socket.get(), SOL_SOCKET, SO_SNDBUF, &kSenderTakes,
                           sizeof kSenderTakes) == 0);
  SPCCL_CHECK(::connect(made.socket.get(), generic, bytes) == 0);
  made.reader.Reset(::accept4(made.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  SPCCL_CHECK(made.reader.valid());
  // Far more than the reader's buffer, which does not grow once it has been set, takes.
  const std::vector<char> data(1 << 20);
  SPCCL_CHECK(::send(made.socket.get(), data.data(), data.size(), MSG_DONTWAIT) > kReaderTakes * 4);
  const linger on{.l_onoff = 1, .l_linger = 60};
  SPCCL_CHECK(::setsockopt(made.socket.get(), SOL_SOCKET, SO_LINGER, &on, sizeof on) == 0);
  return made;
}

// A socket at which a packet waits with `passed` beside it, of which it is the last holder.
inline UniqueFd MakeHolderOf(UniqueFd passed) {
  int ends[2];
  SPCCL_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const UniqueFd sender(ends[0]);
  SPCCL_CHECK(shm::SendPacket(sender.get(), "x", 1, {passed.get()}).ok());
  passed.Reset();  // not at the end of the caller's expression
  return UniqueFd(ends[1]);
}

}  // namespace spccl::daemon
