// The threads, one a user, that close descriptors which clients have passed and which need not be
// what they should: to close a socket with SO_LINGER, or a file of a FUSE, can take for as long as
// whoever made it likes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "daemon/reaper.h"

namespace spccl::daemon {

// Throws std::system_error where there can be no thread more.
void StartFdCloser(std::function<void()> run);

// Tests have others.
struct FdCloserHooks {
  std::function<int64_t()> now_ns = MonotonicNanos;
  std::function<void(std::function<void()>)> start = StartFdCloser;
  std::function<void(UniqueFd)> close = [](UniqueFd) {};
};

class FdCloser {
 public:
  // So many of one user's may wait to be closed, where the first has waited for a second; then it
  // is to pass no more.
  static constexpr size_t kMostOfAUser = 256;
  // So many of one user's may at all, or half of what all users may have, where that is less.
  static constexpr size_t kMostAtOnce = 4 * kMostOfAUser;

  // `reaper` is borrowed: it closes shared memory, which waits for nobody but may be much to free.
  // nullptr: none is expected.
  explicit FdCloser(Reaper* reaper, FdCloserHooks hooks = {});
  // Waits for nothing: what cannot be closed goes with the process, but a file of a FUSE, which
  // keeps the process's remains (docs/adr/0004-core-thread.md, known limits).
  ~FdCloser();
  FdCloser(const FdCloser&) = delete;
  FdCloser& operator=(const FdCloser&) = delete;

  // Closes what that user has passed. Thread-safe; never blocks.
  void Close(uid_t user, UniqueFd fd);
  // Ends a client's connection at once, and closes its socket: here, unless descriptors lie beside
  // what has not been read, which the kernel would close with it. Thread-safe; never
  // blocks.
  void CloseSocket(uid_t user, UniqueFd socket);
  // Whether the user has as many waiting as it may.
  bool IsFullOf(uid_t user) const;
  // Whether those of all users are a quarter of what this process may have open. Who passes more
  // then, by connecting anew, cannot be told from others before its connection is accepted.
  bool IsFull() const;

 private:
  struct State;
  // Under the state's lock.
  static void Start(const std::shared_ptr<State>& state, uid_t user);
  static void Run(const std::shared_ptr<State>& state, uid_t user);
  void Add(uid_t user, UniqueFd fd, bool holds_packets);

  Reaper* const reaper_;
  const size_t most_, most_of_a_user_;
  const std::shared_ptr<State> state_;  // the threads' too, which may outlive this
};

// Descriptors that a user has passed. Those left at the end are closed by the closer, which
// outlives them.
class PassedFds {
 public:
  PassedFds(std::vector<UniqueFd> fds, uid_t user, FdCloser* closer)
      : fds_(std::move(fds)), user_(user), closer_(closer) {}
  PassedFds(PassedFds&& other) noexcept = default;
  PassedFds& operator=(PassedFds&& other) noexcept {
    std::swap(fds_, other.fds_);
    std::swap(user_, other.user_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~PassedFds() {
    for (UniqueFd& fd : fds_) {
      if (fd.valid()) closer_->Close(user_, std::move(fd));
    }
  }

  size_t size() const { return fds_.size(); }
  bool empty() const { return fds_.empty(); }
  int operator[](size_t i) const { return fds_[i].get(); }
  // For those who take what turns out to be what it should be.
  std::span<UniqueFd> all() { return fds_; }
  // Closes them on this thread: they have turned out to be what they should be.
  void CloseHere() { fds_.clear(); }

 private:
  std::vector<UniqueFd> fds_;
  uid_t user_;
  FdCloser* closer_;
};

}  // namespace spccl::daemon
