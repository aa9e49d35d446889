#include "proto/shm/socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::shm {
namespace {

constexpr char kWouldBlock[] = "would block";

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path is ", path.size(), " bytes long, at most ",
                     sizeof address.sun_path - 1, " are possible: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

absl::Status TransferError(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::UnavailableError(kWouldBlock);
  return ErrnoStatus(errno, what);
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectSession(const std::string& path) {
  SPCCL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  SPCCL_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "connect " + path);
  }
  return fd;
}

absl::StatusOr<UniqueFd> ListenSession(const std::string& path, unsigned mode) {
  SPCCL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  if (ConnectSession(path).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("another process listens on ", path));
  }
  SPCCL_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  ::unlink(path.c_str());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind " + path);
  }
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, "chmod " + path);
  if (::listen(fd.get(), 128) != 0) return ErrnoStatus(errno, "listen " + path);
  return fd;
}

absl::Status SendPacket(int socket, const void* data, size_t bytes, std::vector<int> fds) {
  SPCCL_CHECK(fds.size() <= kMaxPassedFds);
  iovec piece{.iov_base = const_cast<void*>(data), .iov_len = bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return TransferError("send on a session socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<Packet> ReceivePacket(int socket, void* data, size_t capacity) {
  iovec piece{.iov_base = data, .iov_len = capacity};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  while ((received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return TransferError("receive on a session socket");
  }
  Packet packet;
  packet.bytes = static_cast<size_t>(received);
  packet.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}

bool IsWouldBlock(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.message() == kWouldBlock;
}

}  // namespace spccl::shm
