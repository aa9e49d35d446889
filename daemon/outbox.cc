#include "daemon/outbox.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/shm/socket.h"

namespace spccl::daemon {

absl::Status Outbox::Send(int socket, const shm::Reply& reply, const std::vector<int>& fds,
                          size_t owed) {
  if (!waiting_.empty()) return Keep(reply, fds, owed);
  absl::Status sent = shm::SendPacket(socket, &reply, sizeof reply, fds);
  return shm::IsWouldBlock(sent) ? Keep(reply, fds, owed) : sent;
}

absl::Status Outbox::Keep(const shm::Reply& reply, const std::vector<int>& fds, size_t owed) {
  owed = std::min(owed, kMostOwed);
  if (waiting_.size() >= kMost + owed || waiting_fds_ + fds.size() > kMostFds + owed) {
    return absl::ResourceExhaustedError(absl::StrCat("does not read its replies, of which ",
                                                     waiting_.size(), " wait, with ", waiting_fds_,
                                                     " descriptors"));
  }
  Packet packet{.reply = reply, .fds = {}};
  for (const int fd : fds) {
    packet.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!packet.fds.back().valid()) return ErrnoStatus(errno, "keep a descriptor for a reply");
  }
  waiting_fds_ += packet.fds.size();
  waiting_.push_back(std::move(packet));
  return absl::OkStatus();
}

absl::Status Outbox::Flush(int socket) {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const Packet& packet = waiting_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : packet.fds) fds.push_back(fd.get());
    absl::Status sent = shm::SendPacket(socket, &packet.reply, sizeof packet.reply, fds);
    if (shm::IsWouldBlock(sent)) return absl::OkStatus();
    SPCCL_RETURN_IF_ERROR(std::move(sent));
    waiting_fds_ -= fds.size();
  }
  return absl::OkStatus();
}

}  // namespace spccl::daemon
