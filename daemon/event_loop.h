// The core thread's loop: descriptors, and work that other threads hand over.
//
// All but Post() and heartbeat_ns() belongs to the thread that runs the loop.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace spccl::daemon {

class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;  // epoll's event bits
  using Token = uint64_t;                                // 0: watches nothing

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();

  // Calls `handler` when `fd` (borrowed) has one of `events`. Unwatch before the fd is closed: a
  // descriptor that another process holds too stays in epoll after our close.
  absl::StatusOr<Token> Watch(int fd, uint32_t events, Handler handler);
  void Unwatch(int fd, Token token);
  // From now on the handler is called for these events.
  absl::Status Change(int fd, Token token, uint32_t events);

  // Runs `fn` on the loop's thread, in the order of the calls. Thread-safe; never blocks. What is
  // posted after the last turn is dropped with the loop.
  void Post(std::function<void()> fn);

  // One turn: waits until something happens, at most `timeout_ms`, then runs all that is due.
  void RunOnce(int timeout_ms);

  // Whether the caller is the thread that ran the last turn. Thread-safe.
  bool OnLoopThread() const {
    // Relaxed: only the loop's thread can read its own id here, and it wrote that itself.
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  // When the last turn began. Thread-safe.
  int64_t heartbeat_ns() const { return heartbeat_ns_.load(std::memory_order_relaxed); }

 private:
  EventLoop(UniqueFd epoll, UniqueFd wakeup)
      : epoll_(std::move(epoll)), wakeup_(std::move(wakeup)) {}
  void RunPosted();

  UniqueFd epoll_, wakeup_;
  Token next_token_ = 1;
  // Shared: a handler may unwatch itself while it runs.
  std::unordered_map<Token, std::shared_ptr<Handler>> handlers_;
  std::atomic<std::thread::id> thread_{};
  std::atomic<int64_t> heartbeat_ns_{0};  // relaxed: a time stamp that orders nothing
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace spccl::daemon
