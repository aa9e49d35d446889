// Sending and receiving session messages with descriptors beside them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace spccl::shm {

inline constexpr int kMaxPassedFds = 48;  // as many as a kRegisterCuda may have pieces
// As many as the kernel lets anybody pass (its SCM_MAX_FD). Those for which there is no room it
// closes itself, on the thread that receives, and that can take for ever.
inline constexpr size_t kMostAPacket = 253;

struct Packet {
  size_t bytes = 0;        // 0: the other side has closed
  bool truncated = false;  // longer than the caller's buffer, or more descriptors than allowed
  // Of `truncated`: descriptors are missing, as this process may open no more (RLIMIT_NOFILE).
  bool lost_fds = false;
  std::vector<UniqueFd> fds;  // close-on-exec; all that came, also where they are too many
};

// Connects to a listening SOCK_SEQPACKET socket. Waits at most `timeout_ns` while the listener's
// backlog is full, then: DeadlineExceeded. NotFound: no such file; Unavailable: nobody listens.
absl::StatusOr<UniqueFd> ConnectSession(const std::string& path,
                                        int64_t timeout_ns = 5'000'000'000);
// Binds and listens; replaces a stale socket file that nobody listens on. AlreadyExists: a live
// one. FailedPrecondition: a file of another kind, which is left as it is. Whoever connects may
// pass no descriptors, where the kernel can forbid it (from 6.16 on): what is sent to a socket that
// is not read yet, or never, the kernel closes on the thread that closes the socket.
absl::StatusOr<UniqueFd> ListenSession(const std::string& path, unsigned mode);
// The same for a socket of another type, with or without SOCK_NONBLOCK.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int type, unsigned mode);
// The file that a socket has just been bound to.
class SocketFile {
 public:
  SocketFile() = default;  // none
  explicit SocketFile(std::string path);
  // Removes it, unless it has gone, or another one has its path by now.
  void Remove() const;

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// From now on the other side may.
void LetPassDescriptors(int socket);

// Sends one packet; never raises SIGPIPE. On a non-blocking socket that is full: Unavailable.
absl::Status SendPacket(int socket, const void* data, size_t bytes, std::vector<int> fds = {});
// Receives one packet of at most `capacity` bytes. On a non-blocking socket with nothing to read:
// Unavailable with message "would block".
absl::StatusOr<Packet> ReceivePacket(int socket, void* data, size_t capacity);
bool IsWouldBlock(const absl::Status& status);

}  // namespace spccl::shm
