// What a client has not made room for yet in its socket: many of its ranks may be answered at once.
// Of the core thread.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

class Outbox {
 public:
  // So many replies wait at most: a client that reads none of them holds up nobody.
  static constexpr size_t kMost = 1024;

  // Sends the reply, after those that wait, or lets it wait too, with duplicates of `fds`.
  // ResourceExhausted: as many as may wait do. Otherwise what sending failed with.
  absl::Status Send(int socket, const shm::Reply& reply, const std::vector<int>& fds);
  // Sends of those that wait what there is room for.
  absl::Status Flush(int socket);
  bool empty() const { return waiting_.empty(); }

 private:
  struct Packet {
    shm::Reply reply;
    std::vector<UniqueFd> fds;
  };
  absl::Status Keep(const shm::Reply& reply, const std::vector<int>& fds);

  std::deque<Packet> waiting_;
};

}  // namespace spccl::daemon
