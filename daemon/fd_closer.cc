#include "daemon/fd_closer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {
namespace {

// Only files of shared memory have seals.
bool IsSharedMemory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

// Whether a packet waits at a socket that has been shut down. One may be of 0 bytes, as the end is:
// beside a packet there are its sender's credentials.
bool HasPacket(int socket) {
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return true;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  return received > 0 || (received == 0 && message.msg_controllen > 0);
}

// With what it has not sent it goes on in the background.
void DoNotLinger(int fd) {
  const linger off{};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
}

void ClosePackets(int socket) {
  for (;;) {
    std::array<std::byte, 1> bytes;
    const absl::StatusOr<shm::Packet> packet =
        shm::ReceivePacket(socket, bytes.data(), bytes.size());
    if (!packet.ok() || (packet->bytes == 0 && packet->fds.empty())) return;
    for (const UniqueFd& fd : packet->fds) DoNotLinger(fd.get());
  }
}

}  // namespace

struct FdCloser::State {
  struct Entry {
    uid_t user;
    UniqueFd fd;
    bool holds_packets;
  };

  std::mutex mutex;
  std::condition_variable ready;
  std::deque<Entry> entries;
  std::map<uid_t, size_t> waiting;  // with the one that is being closed
  bool stopping = false;
};

FdCloser::FdCloser(Reaper* reaper) : reaper_(*reaper), state_(std::make_shared<State>()) {
  std::thread thread([state = state_] { Run(state); });
  ::pthread_setname_np(thread.native_handle(), "spccl-fd-closer");
  thread.detach();
}

FdCloser::~FdCloser() {
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->ready.notify_one();
}

void FdCloser::Close(uid_t user, UniqueFd fd) {
  if (!fd.valid()) return;
  if (IsSharedMemory(fd.get())) {
    return reaper_.Defer([shared = std::make_shared<UniqueFd>(std::move(fd))] { shared->Reset(); });
  }
  Add(user, std::move(fd), /*holds_packets=*/false);
}

void FdCloser::CloseSocket(uid_t user, UniqueFd socket) {
  // Nothing is sent to it any more.
  ::shutdown(socket.get(), SHUT_RDWR);
  if (HasPacket(socket.get())) Add(user, std::move(socket), /*holds_packets=*/true);
}

bool FdCloser::IsFullOf(uid_t user) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->waiting.find(user);
  return found != state_->waiting.end() && found->second >= kMostOfAUser;
}

void FdCloser::Add(uid_t user, UniqueFd fd, bool holds_packets) {
  const std::lock_guard lock(state_->mutex);
  state_->entries.push_back({.user = user, .fd = std::move(fd), .holds_packets = holds_packets});
  ++state_->waiting[user];
  state_->ready.notify_one();
}

void FdCloser::Run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->ready.wait(lock, [&] { return state->stopping || !state->entries.empty(); });
    if (state->entries.empty()) return;
    State::Entry entry = std::move(state->entries.front());
    state->entries.pop_front();
    lock.unlock();
    if (entry.holds_packets) ClosePackets(entry.fd.get());
    DoNotLinger(entry.fd.get());
    entry.fd.Reset();
    lock.lock();
    const auto found = state->waiting.find(entry.user);
    if (--found->second == 0) state->waiting.erase(found);
  }
}

}  // namespace spccl::daemon
