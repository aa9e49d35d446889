// Who is behind each connection of the control socket.
//
// gRPC tells no uid; a connection that we accept ourselves is known to it by its descriptor's
// number ("fd:7"), which is free for reuse only once the connection and all its calls are gone.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/control_service_access.h"

namespace spccl::daemon {

// The number of a group by name or number; nullopt for an empty name. NotFound: no such group.
absl::StatusOr<std::optional<gid_t>> ResolveGroup(const std::string& name);

// The peer of a connected UNIX socket, as it was when it connected: by SO_PEERCRED and
// SO_PEERGROUPS.
absl::StatusOr<Caller> CallerOf(int socket, std::optional<gid_t> admin_group);

// Thread-safe.
class PeerTable {
 public:
  static constexpr int kConnectionsPerUser = 64;
  // Of all who are no administrators: who has subordinate ids is many users.
  static constexpr int kConnectionsOfOthers = 1024;

  // Notes the caller of a newly accepted connection, in place of whoever had its number before.
  // ResourceExhausted: the user has kConnectionsPerUser open already, or is no administrator and
  // those have kConnectionsOfOthers.
  absl::Status Add(int socket, const Caller& caller);
  // `peer` is what gRPC calls the connection. Unauthenticated: none of ours.
  absl::StatusOr<Caller> Find(const std::string& peer) const;

 private:
  struct Entry {
    Caller caller;
    ino_t inode;  // tells whether the number still means the same connection
  };
  // Of those that `counted` is true of. Forgets those of them that are closed; under the lock.
  int CountOpen(const std::function<bool(const Caller&)>& counted);

  mutable std::mutex mutex_;
  std::map<int, Entry> entries_;
};

}  // namespace spccl::daemon
