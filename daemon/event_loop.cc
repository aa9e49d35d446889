#include "daemon/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

constexpr uint64_t kWakeupToken = 0;

absl::Status ControlEpoll(int epoll, int operation, int fd, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0) return ErrnoStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  UniqueFd wakeup(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.valid()) return ErrnoStatus(errno, "eventfd");
  SPCCL_RETURN_IF_ERROR(
      ControlEpoll(epoll.get(), EPOLL_CTL_ADD, wakeup.get(), EPOLLIN, kWakeupToken));
  auto loop = std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wakeup)));
  loop->heartbeat_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
  return loop;
}

absl::StatusOr<EventLoop::Token> EventLoop::Watch(int fd, uint32_t events, Handler handler) {
  const Token token = next_token_++;
  SPCCL_RETURN_IF_ERROR(ControlEpoll(epoll_.get(), EPOLL_CTL_ADD, fd, events, token));
  handlers_.emplace(token, std::make_shared<Handler>(std::move(handler)));
  return token;
}

void EventLoop::Unwatch(int fd, Token token) {
  if (handlers_.erase(token) == 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

absl::Status EventLoop::Change(int fd, Token token, uint32_t events) {
  return ControlEpoll(epoll_.get(), EPOLL_CTL_MOD, fd, events, token);
}

void EventLoop::Post(std::function<void()> fn) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(fn));
  }
  // Whoever finds the queue empty wakes the loop; it takes the whole queue at once.
  if (!first) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> due;
  {
    std::lock_guard lock(mutex_);
    due.swap(posted_);
  }
  for (auto& fn : due) fn();
}

void EventLoop::RunOnce(int timeout_ms) {
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
  heartbeat_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
  bool woken = false;
  for (int i = 0; i < count; ++i) {
    const Token token = events[i].data.u64;  // a copy: the struct is packed
    if (token == kWakeupToken) {
      uint64_t value;
      [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &value, sizeof value);
      woken = true;
      continue;
    }
    // A handler that ran before in this turn may have ended this one.
    const auto found = handlers_.find(token);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;
    (*handler)(events[i].events);
  }
  if (woken) RunPosted();
}

}  // namespace spccl::daemon
