#include "daemon/peers/linear_timeouts.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>

namespace spccl::daemon::peers {
namespace {

// 0 where the address is not of TCP's families.
uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

bool IsMeant(int fd, Sockets which, uint16_t port) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  sockaddr* const out = reinterpret_cast<sockaddr*>(&address);
  if (which == Sockets::kDialed) {
    return ::getpeername(fd, out, &bytes) == 0 && PortOf(address) == port;
  }
  int listens = 0;
  socklen_t size = sizeof listens;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
         ::getsockname(fd, out, &bytes) == 0 && PortOf(address) == port;
}

}  // namespace

void UseLinearTimeouts(Sockets which, uint16_t port) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);
    if (fd <= 0 || !IsMeant(fd, which, port)) continue;
    // Where the number means another socket by now, that one gets the option: no harm.
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &one, sizeof one);
  }
}

}  // namespace spccl::daemon::peers
