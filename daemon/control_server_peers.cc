#include "daemon/control_server_peers.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/find_group.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

// 0 where the descriptor is no open socket.
ino_t InodeOf(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

absl::StatusOr<std::vector<gid_t>> PeerGroups(int socket) {
  std::vector<gid_t> groups(64);
  for (;;) {
    socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    if (errno != ERANGE) return ErrnoStatus(errno, "read the caller's groups");
    groups.resize(bytes / sizeof(gid_t));
  }
}

}  // namespace

absl::StatusOr<std::optional<gid_t>> ResolveGroup(const std::string& name) {
  if (name.empty()) return std::nullopt;
  uint32_t number;
  if (absl::SimpleAtoi(name, &number)) return gid_t{number};
  SPCCL_ASSIGN_OR_RETURN(const std::optional<gid_t> found, FindGroup(name));
  if (!found.has_value()) return absl::NotFoundError(absl::StrCat("there is no group ", name));
  return found;
}

absl::StatusOr<Caller> CallerOf(int socket, std::optional<gid_t> admin_group) {
  ucred credentials;
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return ErrnoStatus(errno, "read the caller's credentials");
  }
  Caller caller{.uid = credentials.uid,
                .administrator = credentials.uid == 0 || credentials.uid == ::geteuid()};
  if (!caller.administrator && admin_group.has_value()) {
    SPCCL_ASSIGN_OR_RETURN(const std::vector<gid_t> groups, PeerGroups(socket));
    caller.administrator = credentials.gid == *admin_group ||
                           std::find(groups.begin(), groups.end(), *admin_group) != groups.end();
  }
  return caller;
}

int PeerTable::CountOpen(const std::function<bool(const Caller&)>& counted) {
  std::erase_if(entries_, [&counted](const auto& entry) {
    return counted(entry.second.caller) && InodeOf(entry.first) != entry.second.inode;
  });
  return static_cast<int>(
      std::count_if(entries_.begin(), entries_.end(),
                    [&counted](const auto& entry) { return counted(entry.second.caller); }));
}

absl::Status PeerTable::Add(int socket, const Caller& caller) {
  const std::lock_guard lock(mutex_);
  entries_.erase(socket);
  const int own = CountOpen([&caller](const Caller& one) { return one.uid == caller.uid; });
  if (own >= kConnectionsPerUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat("uid ", caller.uid, " has ", own, " control connections open already"));
  }
  if (!caller.administrator) {
    const int others = CountOpen([](const Caller& one) { return !one.administrator; });
    if (others >= kConnectionsOfOthers) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "users other than administrators have ", others, " control connections open already"));
    }
  }
  entries_[socket] = {.caller = caller, .inode = InodeOf(socket)};
  return absl::OkStatus();
}

absl::StatusOr<Caller> PeerTable::Find(const std::string& peer) const {
  absl::string_view number = peer;
  int socket = -1;
  if (absl::ConsumePrefix(&number, "fd:") && absl::SimpleAtoi(number, &socket)) {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(socket); found != entries_.end()) {
      return found->second.caller;
    }
  }
  return absl::UnauthenticatedError(absl::StrCat("unknown peer ", peer));
}

}  // namespace spccl::daemon
