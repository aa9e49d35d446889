#include "proto/shm/socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::shm {
namespace {

constexpr char kWouldBlock[] = "would block";
constexpr int kPassRights = 83;  // SO_PASSRIGHTS, which the headers may not know yet

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A name that starts with a NUL would be an abstract socket, which no folder protects.
  if (path.empty()) return absl::InvalidArgumentError("socket path is empty");
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path is ", path.size(), " bytes long, at most ",
                     sizeof address.sun_path - 1, " are possible: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> NewSocket(int type) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

// 0: no limit.
absl::Status SetSendTimeout(int socket, int64_t timeout_ns) {
  const timeval timeout{.tv_sec = timeout_ns / 1'000'000'000,
                        .tv_usec = timeout_ns % 1'000'000'000 / 1000};
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) {
    return ErrnoStatus(errno, "set a socket's send timeout");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Connect(const std::string& path, int type, int64_t timeout_ns) {
  SPCCL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  SPCCL_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(type));
  // On a UNIX socket the send timeout bounds connect(), which waits while the backlog is full. A
  // zero would mean for ever.
  SPCCL_RETURN_IF_ERROR(SetSendTimeout(fd.get(), std::max<int64_t>(timeout_ns, 1000)));
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      return absl::DeadlineExceededError("connect " + path + ": the listener does not accept");
    }
    return ErrnoStatus(errno, "connect " + path);
  }
  SPCCL_RETURN_IF_ERROR(SetSendTimeout(fd.get(), 0));
  return fd;
}

// Removes a socket file that nobody listens on. Leaves a live one, and anything that is no socket.
absl::Status RemoveStaleSocket(const std::string& path, int type) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "stat " + path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(path + " exists and is not a socket");
  }
  absl::Status probe = Connect(path, type, /*timeout_ns=*/0).status();
  // Connected, or a full backlog: somebody is there.
  if (probe.ok() || absl::IsDeadlineExceeded(probe)) {
    return absl::AlreadyExistsError("another process listens on " + path);
  }
  // Only a refusal proves that nobody listens; a socket of another type, say, is in use.
  if (!absl::IsUnavailable(probe)) return probe;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "unlink " + path);
  return absl::OkStatus();
}

// A kernel before 6.16 lets everybody pass descriptors: it knows no such option.
void SetPasses(int socket, int passes) {
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &passes, sizeof passes);
}

absl::Status TransferError(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::UnavailableError(kWouldBlock);
  return ErrnoStatus(errno, what);
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectSession(const std::string& path, int64_t timeout_ns) {
  return Connect(path, SOCK_SEQPACKET, timeout_ns);
}

absl::StatusOr<UniqueFd> ListenSession(const std::string& path, unsigned mode) {
  return ListenUnix(path, SOCK_SEQPACKET, mode);
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int type, unsigned mode) {
  SPCCL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  SPCCL_RETURN_IF_ERROR(RemoveStaleSocket(path, type));
  SPCCL_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(type));
  SetPasses(fd.get(), 0);  // those that are accepted likewise
  // The file is made with the descriptor's mode (less the umask): it is never more open than asked.
  if (::fchmod(fd.get(), mode) != 0) return ErrnoStatus(errno, "fchmod of a socket");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind " + path);
  }
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, "chmod " + path);
  if (::listen(fd.get(), 128) != 0) return ErrnoStatus(errno, "listen " + path);
  return fd;
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat info;
  if (::lstat(path_.c_str(), &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

void SocketFile::Remove() const {
  struct stat info;
  if (inode_ == 0 || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

void LetPassDescriptors(int socket) {
  SetPasses(socket, 1);
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
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostAPacket) + CMSG_SPACE(sizeof(ucred))];
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
  packet.lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::array<UniqueFd, kMostAPacket> fds;  // owned before there may be no memory for them
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds[i].Reset(fd);
    }
    packet.fds.reserve(packet.fds.size() + count);
    std::move(fds.begin(), fds.begin() + count, std::back_inserter(packet.fds));
  }
  packet.truncated =
      (message.msg_flags & MSG_TRUNC) != 0 || packet.lost_fds || packet.fds.size() > kMaxPassedFds;
  return packet;
}

bool IsWouldBlock(const absl::Status& status) {
  return absl::IsUnavailable(status) && status.message() == kWouldBlock;
}

}  // namespace spccl::shm
