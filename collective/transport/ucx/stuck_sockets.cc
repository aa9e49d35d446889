#include "collective/transport/ucx/stuck_sockets.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace spccl::transport::ucx {
namespace {

// UCX nests them twice; a circle would be an error of the kernel's.
constexpr int kDeepest = 4;

bool IsSocket(int fd) {
  int type;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

// The sockets that it watches, or that others watch which it watches.
void AddWatched(int epoll_fd, int depth, std::set<int>* found) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", epoll_fd));
  for (std::string line; std::getline(info, line);) {
    int fd;
    if (std::sscanf(line.c_str(), "tfd: %d", &fd) != 1) continue;
    if (IsSocket(fd)) {
      found->insert(fd);
    } else if (depth < kDeepest) {
      AddWatched(fd, depth + 1, found);
    }
  }
}

// Of a connection that is full: how much of what it sent was acknowledged, ever.
std::optional<uint64_t> AcknowledgedIfFull(int fd) {
  pollfd room = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) != 0) return std::nullopt;
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  // One that is being set up has sent nothing, and UCX ends it without a word.
  constexpr uint8_t kEstablished = 1, kCloseWait = 8;  // of the kernel's net/tcp_states.h
  if (info.tcpi_state != kEstablished && info.tcpi_state != kCloseWait) return std::nullopt;
  return info.tcpi_bytes_acked;
}

}  // namespace

void StuckSockets::Begin() {
  std::erase_if(seen_, [](const auto& one) { return one.second.moves; });
}

bool StuckSockets::Clear(int64_t now_ns, int64_t patience_ns) {
  std::set<int> sockets;
  AddWatched(event_fd_, 0, &sockets);
  std::erase_if(seen_, [&](const auto& one) { return !sockets.contains(one.first); });
  bool all_move = true;
  for (const int fd : sockets) {
    const std::optional<uint64_t> acknowledged = AcknowledgedIfFull(fd);
    if (!acknowledged) continue;
    Full& full = seen_.try_emplace(fd, Full{*acknowledged, now_ns}).first->second;
    full.moves = full.moves || full.acknowledged_bytes != *acknowledged;
    if (full.moves) continue;
    if (now_ns - full.since_ns < patience_ns) {
      all_move = false;
      continue;
    }
    ::shutdown(fd, SHUT_RDWR);
    Log(LogLevel::kInfo, "ucx", "shut down a connection whose peer took nothing more",
        {{"acknowledged_bytes", absl::StrCat(*acknowledged)}});
  }
  if (all_move) seen_.clear();  // their descriptors may be others' by the next time
  return all_move;
}

}  // namespace spccl::transport::ucx
