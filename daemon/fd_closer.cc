#include "daemon/fd_closer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kPatienceNs = 1'000'000'000;
constexpr size_t kMostUnlessKnown = 256;

// Only files of shared memory have seals.
bool IsSharedMemory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

// Reads away what waits at a socket that has been shut down, up to the first descriptors beside it.
// Whether there are any.
bool HasPassed(int socket) {
  int type = 0;
  socklen_t bytes_of_type = sizeof type;
  (void)::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes_of_type);
  // A packet may be of 0 bytes, as the end is: beside a packet there are its sender's credentials.
  const int has_packets = type == SOCK_SEQPACKET;
  // What is beside an urgent byte, to look at what comes next does not show.
  char urgent;
  if (::recv(socket, &urgent, sizeof urgent, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) > 0) return true;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &has_packets, sizeof has_packets) != 0) {
    return true;
  }
  for (;;) {
    std::array<char, 4096> bytes;
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];  // no room for descriptors
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = has_packets ? sizeof control : 0;
    const ssize_t received = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
    if (received < 0) {
      // Said once, before what it has sent, of a peer that has closed with replies unread.
      if (errno == ECONNRESET || errno == EINTR) continue;
      return true;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) return true;
    if (received == 0 && message.msg_controllen == 0) return false;
    // Of a stream no more than that: there may be descriptors beside what follows.
    const auto plain = static_cast<size_t>(received);
    if (::recv(socket, bytes.data(), plain, MSG_DONTWAIT) != received) return true;
  }
}

// With what it has not sent it goes on in the background.
void DoNotLinger(int fd) {
  const linger off{};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
}

void ClosePackets(int socket) {
  while (HasPassed(socket)) {
    std::array<std::byte, 4096> bytes;
    const absl::StatusOr<shm::Packet> packet =
        shm::ReceivePacket(socket, bytes.data(), bytes.size());
    if (!packet.ok() || (packet->fds.empty() && packet->bytes == 0)) return;
    for (const UniqueFd& fd : packet->fds) DoNotLinger(fd.get());
  }
}

// There are two closers, for sessions and for control: together, half.
size_t QuarterOfWhatMayBeOpen() {
  rlimit limit;
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : kMostUnlessKnown;
}

}  // namespace

void StartFdCloser(std::function<void()> run) {
  std::thread thread(std::move(run));
  ::pthread_setname_np(thread.native_handle(), "spccl-fd-closer");
  thread.detach();
}

struct FdCloser::State {
  struct Entry {
    UniqueFd fd;
    bool holds_packets;
    int64_t since_ns;
  };
  struct User {
    std::deque<Entry> entries;  // the first is being closed, if it has a thread
    bool has_thread = false;
  };

  const FdCloserHooks hooks;
  std::mutex mutex;
  std::map<uid_t, User> users;  // of whom something waits
  bool lacks_threads = false;   // said once
};

FdCloser::FdCloser(Reaper* reaper, FdCloserHooks hooks)
    : reaper_(reaper),
      most_(QuarterOfWhatMayBeOpen()),
      most_of_a_user_(std::min(kMostAtOnce, most_ / 2)),
      state_(new State{.hooks = std::move(hooks)}) {}

FdCloser::~FdCloser() = default;

void FdCloser::Close(uid_t user, UniqueFd fd) {
  if (!fd.valid()) return;
  if (reaper_ != nullptr && IsSharedMemory(fd.get())) {
    return reaper_->Defer(
        [shared = std::make_shared<UniqueFd>(std::move(fd))] { shared->Reset(); });
  }
  Add(user, std::move(fd), /*holds_packets=*/false);
}

void FdCloser::CloseSocket(uid_t user, UniqueFd socket) {
  // Nothing is sent to it any more.
  ::shutdown(socket.get(), SHUT_RDWR);
  if (HasPassed(socket.get())) Add(user, std::move(socket), /*holds_packets=*/true);
}

bool FdCloser::IsFullOf(uid_t user) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->users.find(user);
  if (found == state_->users.end()) return false;
  const std::deque<State::Entry>& entries = found->second.entries;
  // That there are some is no fault; that they do not get on is.
  const bool full = entries.size() >= most_of_a_user_ ||
                    (entries.size() >= kMostOfAUser &&
                     state_->hooks.now_ns() - entries.front().since_ns > kPatienceNs);
  if (full) Start(state_, user);  // of such a one no more is added, which would
  return full;
}

bool FdCloser::IsFull() const {
  const std::lock_guard lock(state_->mutex);
  size_t waiting = 0;
  for (const auto& [user, its] : state_->users) waiting += its.entries.size();
  const bool full = waiting >= most_;
  if (!full) return false;
  // Of those who had no thread perhaps nothing more comes that would start one.
  for (const auto& [user, its] : state_->users) Start(state_, user);
  return true;
}

void FdCloser::Add(uid_t user, UniqueFd fd, bool holds_packets) {
  const std::lock_guard lock(state_->mutex);
  state_->users[user].entries.push_back(
      {.fd = std::move(fd), .holds_packets = holds_packets, .since_ns = state_->hooks.now_ns()});
  Start(state_, user);
}

// A thread a user: one's descriptors hold up no other's.
void FdCloser::Start(const std::shared_ptr<State>& state, uid_t user) {
  bool& has_thread = state->users[user].has_thread;
  if (has_thread) return;
  try {
    state->hooks.start([state, user] { Run(state, user); });
    has_thread = true;
    state->lacks_threads = false;
  } catch (const std::system_error& error) {
    if (std::exchange(state->lacks_threads, true)) return;
    Log(LogLevel::kWarning, "session", "no thread to close what clients have passed",
        {{"error", error.what()}});
  }
}

void FdCloser::Run(const std::shared_ptr<State>& state, uid_t user) {
  std::unique_lock lock(state->mutex);
  const auto its = state->users.find(user);
  for (auto& entries = its->second.entries; !entries.empty(); entries.pop_front()) {
    State::Entry& entry = entries.front();  // those that are added leave it where it is
    lock.unlock();
    if (entry.holds_packets) ClosePackets(entry.fd.get());
    DoNotLinger(entry.fd.get());
    state->hooks.close(std::move(entry.fd));
    lock.lock();
  }
  state->users.erase(its);
}

}  // namespace spccl::daemon
