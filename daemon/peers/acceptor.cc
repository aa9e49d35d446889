#include "daemon/peers/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/view.h"

namespace spccl::daemon::peers {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
constexpr int kRetryMs = 100;  // where there are no descriptors

// What the kernel calls a socket, never another one; 0: it is none. Asks no file system.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t bytes = sizeof cookie;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

void SetOption(int fd, int level, int option, int value) {
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

uint16_t PortIn(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string RemoteText(const in6_addr& address, uint16_t port) {
  char text[INET6_ADDRSTRLEN] = {};
  (void)::inet_ntop(AF_INET6, &address, text, sizeof text);
  return absl::StrCat(text, " ", port);
}

// IPv4's as a listener of both families has them.
in6_addr Mapped(const in_addr& address) {
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(&mapped.s6_addr[12], &address, sizeof address);
  return mapped;
}

std::string RemoteIn(const sockaddr_storage& address) {
  return RemoteText(address.ss_family == AF_INET6
                        ? reinterpret_cast<const sockaddr_in6&>(address).sin6_addr
                        : Mapped(reinterpret_cast<const sockaddr_in&>(address).sin_addr),
                    PortIn(address));
}

// Of gRPC's name for it, "ipv6:%5Bfe80::1%25eth0%5D:40962" with brackets and zone; empty where it
// is none.
std::string RemoteNamed(std::string_view name) {
  const size_t colon = name.rfind(':');
  uint32_t port = 0;
  if (colon == name.npos || !absl::SimpleAtoi(View(name.substr(colon + 1)), &port)) return "";
  absl::string_view host = View(name.substr(0, colon));
  const bool is_v6 = absl::ConsumePrefix(&host, "ipv6:");
  if (!is_v6 && !absl::ConsumePrefix(&host, "ipv4:")) return "";
  if (!absl::ConsumePrefix(&host, "%5B")) absl::ConsumePrefix(&host, "[");
  const std::string text(host.substr(0, host.find_first_of("%]")));
  in6_addr address{};
  in_addr v4{};
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, text.c_str(),
                  is_v6 ? static_cast<void*>(&address) : &v4) != 1) {
    return "";
  }
  return RemoteText(is_v6 ? address : Mapped(v4), static_cast<uint16_t>(port));
}

// To close it here might take for ever.
void CloseElsewhere(UniqueFd fd) {
  try {
    std::thread([owned = std::make_shared<UniqueFd>(std::move(fd))] {}).detach();
  } catch (const std::system_error& error) {
    Log(LogLevel::kWarning, "peers", "no thread to close a connection: it was closed on this one",
        {{"error", error.what()}});
  }
}

// Listens there; the port is taken from `port` where that is not 0.
absl::StatusOr<UniqueFd> ListenOn(const addrinfo& info, uint16_t port) {
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  if (port != 0 && address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else if (port != 0) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
  UniqueFd fd(::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  // "::" is IPv4's addresses, too.
  if (info.ai_family == AF_INET6) SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), info.ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(errno, "bind");
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Address& address,
                                                           int64_t hello_limit_ns) {
  auto acceptor = std::unique_ptr<Acceptor>(new Acceptor(hello_limit_ns));
  acceptor->stop_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  // All addresses of the machine are those of both families, where it has both.
  if (IsWildcard(address.host) && acceptor->Bind({.host = "::", .port = address.port}).ok()) {
    return acceptor;
  }
  SPCCL_RETURN_IF_ERROR(acceptor->Bind(address));
  return acceptor;
}

absl::Status Acceptor::Bind(const Address& address) {
  const std::string port = absl::StrCat(address.port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  absl::Status first;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    absl::StatusOr<UniqueFd> listener = ListenOn(*info, port_);
    if (!listener.ok()) {
      if (first.ok()) first = listener.status();
      continue;
    }
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
      return ErrnoStatus(errno, "getsockname");
    }
    port_ = PortIn(bound);
    listeners_.push_back(*std::move(listener));
  }
  return listeners_.empty() ? first : absl::OkStatus();
}

Acceptor::~Acceptor() {
  Stop();
}

void Acceptor::Start(std::function<void(UniqueFd)> take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "spccl-acceptor");
}

void Acceptor::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

void Acceptor::Welcome(const std::string& remote) {
  const std::lock_guard lock(mutex_);
  std::erase_if(strangers_, [name = RemoteNamed(remote)](const Stranger& stranger) {
    return stranger.remote == name;
  });
}

void Acceptor::Run() {
  std::vector<pollfd> entries = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (const UniqueFd& listener : listeners_) {
    entries.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  }
  for (;;) {
    const int timeout_ms = CutOff();
    (void)::poll(entries.data(), entries.size(), timeout_ms);
    if (entries[0].revents != 0) return;
    for (size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].revents != 0) Accept(entries[i].fd);
    }
  }
}

void Acceptor::Accept(int listener) {
  sockaddr_storage remote{};
  socklen_t bytes = sizeof remote;
  UniqueFd socket(::accept4(listener, reinterpret_cast<sockaddr*>(&remote), &bytes,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection stays in the backlog: do not spin on it. Said once until one gets in.
      if (!std::exchange(connections_wait_, true)) {
        Log(LogLevel::kError, "peers", "cannot accept: connections wait",
            {{"error", std::strerror(errno)}});
      }
      pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
      (void)::poll(&stop, 1, kRetryMs);
    }
    return;
  }
  connections_wait_ = false;
  SetOption(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  {
    const std::lock_guard lock(mutex_);
    strangers_.push_back({.fd = socket.get(),
                          .cookie = CookieOf(socket.get()),
                          .remote = RemoteIn(remote),
                          .since_ns = MonotonicNanos()});
  }
  take_(std::move(socket));
}

int Acceptor::CutOff() {
  const std::lock_guard lock(mutex_);
  const int64_t now_ns = MonotonicNanos();
  // Those that have gone take no room.
  if (strangers_.size() > kMostStrangers) {
    std::erase_if(strangers_, [](const Stranger& s) { return CookieOf(s.fd) != s.cookie; });
  }
  while (!strangers_.empty()) {
    const Stranger& oldest = strangers_.front();
    const int64_t left_ns = oldest.since_ns + hello_limit_ns_ - now_ns;
    if (strangers_.size() <= kMostStrangers && left_ns > 0) {
      return static_cast<int>(left_ns / kNanosPerMilli) + 1;
    }
    if (CookieOf(oldest.fd) == oldest.cookie) {
      // By a descriptor of our own: the number may be another's from one moment to the next.
      UniqueFd mine(::fcntl(oldest.fd, F_DUPFD_CLOEXEC, 0));
      if (!mine.valid() && errno != EBADF) return kRetryMs;
      if (CookieOf(mine.get()) == oldest.cookie) {
        ::shutdown(mine.get(), SHUT_RDWR);
      } else if (mine.valid()) {
        CloseElsewhere(std::move(mine));  // whatever it is by now
      }
    }
    strangers_.pop_front();
  }
  return -1;
}

}  // namespace spccl::daemon::peers
