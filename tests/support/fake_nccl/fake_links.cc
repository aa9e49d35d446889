#include "tests/support/fake_nccl/fake_links.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"

namespace spccl {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

// An abstract name, which nobody has to remove. The length is bind()'s and connect()'s.
std::pair<sockaddr_un, socklen_t> AddressOf(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes)};
}

}  // namespace

void FakeLinks::Start() {
  if (wake_ >= 0) return;
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  SPCCL_CHECK(wake_ >= 0);
  // Signals are the program's.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { Serve(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

const std::string& FakeLinks::Listen() {
  if (listener_ >= 0) return name_;
  Start();
  std::random_device random;
  char name[64];
  std::snprintf(name, sizeof name, "spccl-fake-nccl-%d-%08x%08x", ::getpid(), random(), random());
  name_ = name;
  const auto [address, length] = AddressOf(name_);
  listener_ = ::socket(AF_UNIX, kSocketFlags, 0);
  SPCCL_CHECK(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  SPCCL_CHECK(::listen(listener_, SOMAXCONN) == 0);
  Wake();
  return name_;
}

std::shared_ptr<FakeLink> FakeLinks::Connect(const std::string& name) {
  Start();
  auto link = std::make_shared<FakeLink>();
  link->dialed = true;
  const auto [address, length] = AddressOf(name);
  const int fd = ::socket(AF_UNIX, kSocketFlags, 0);
  SPCCL_CHECK(fd >= 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    ::close(fd);
    return link;
  }
  link->fd = fd;
  Add(link);
  return link;
}

void FakeLinks::Add(std::shared_ptr<FakeLink> link) {
  links_.push_back(std::move(link));
  Wake();
}

void FakeLinks::Send(FakeLink* link, FakeMessage message, std::string_view bytes) {
  if (link->fd < 0) return;
  const bool waits = !link->out.empty();
  message.bytes = bytes.size();
  link->out.append(reinterpret_cast<const char*>(&message), sizeof message);
  link->out.append(bytes);
  // At once where it can be: a process that ends next has said it.
  if (!waits) Write(link);
  if (!link->out.empty()) Wake();
}

void FakeLinks::Close(FakeLink* link) {
  link->closing = true;
  Wake();
}

void FakeLinks::Wake() const {
  const uint64_t one = 1;
  SPCCL_CHECK(::write(wake_, &one, sizeof one) == sizeof one);
}

void FakeLinks::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<pollfd> polls = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    const auto links = links_;
    for (const auto& link : links) {
      polls.push_back(
          {link->fd, static_cast<short>(link->out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    lock.unlock();
    (void)::poll(polls.data(), polls.size(), -1);
    lock.lock();
    uint64_t woken;
    (void)!::read(wake_, &woken, sizeof woken);
    if (polls[1].revents != 0) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) links_.push_back(std::make_shared<FakeLink>(FakeLink{.fd = fd}));
    }
    for (size_t i = 0; i < links.size(); ++i) {
      if (polls[2 + i].revents != 0 || links[i]->closing) ServeOne(links[i]);
    }
  }
}

void FakeLinks::ServeOne(const std::shared_ptr<FakeLink>& link) {
  Write(link.get());
  const bool open = Read(link);
  if (open && !(link->closing && link->out.empty())) return;
  ::close(std::exchange(link->fd, -1));
  std::erase(links_, link);
  if (!link->closing) owner_.OnEnded(link.get());
  link->world = nullptr;  // it holds the link
}

// False when nothing more will come.
bool FakeLinks::Read(const std::shared_ptr<FakeLink>& link) {
  char bytes[1 << 16];
  ssize_t got;
  while ((got = ::recv(link->fd, bytes, sizeof bytes, 0)) > 0) {
    link->in.append(bytes, static_cast<size_t>(got));
  }
  const bool open = got < 0 && (errno == EAGAIN || errno == EINTR);
  const std::string_view in = link->in;
  size_t at = 0;
  FakeMessage message;
  while (in.size() - at >= sizeof message) {
    std::memcpy(&message, in.data() + at, sizeof message);
    if (in.size() - at - sizeof message < message.bytes) break;
    at += sizeof message;
    if (!link->closing) owner_.OnMessage(link, message, in.substr(at, message.bytes));
    at += message.bytes;
  }
  link->in.erase(0, at);
  return open;
}

void FakeLinks::Write(FakeLink* link) {
  size_t at = 0;
  while (at < link->out.size()) {
    const ssize_t put =
        ::send(link->fd, link->out.data() + at, link->out.size() - at, MSG_NOSIGNAL);
    if (put <= 0) {
      if (errno == EINTR) continue;
      // To nobody: reading says that it has ended.
      if (errno != EAGAIN) at = link->out.size();
      break;
    }
    at += static_cast<size_t>(put);
  }
  link->out.erase(0, at);
}

}  // namespace spccl
