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
  // So many replies and descriptors wait at most, and another for each rank that is `owed` some, of
  // which no more are counted than kMostOwed: a client that reads none of them holds up nobody, and
  // uses up little.
  static constexpr size_t kMost = 1024, kMostFds = 16, kMostOwed = 512;

  // Sends the reply, after those that wait, or lets it wait too, with duplicates of `fds`.
  // ResourceExhausted: as many as may wait do. Otherwise what sending failed with.
  absl::Status Send(int socket, const shm::Reply& reply, const std::vector<int>& fds,
                    size_t owed = 0);
  // Sends of those that wait what there is room for.
  absl::Status Flush(int socket);
  bool empty() const { return waiting_.empty(); }

 private:
  struct Packet {
    shm::Reply reply;
    std::vector<UniqueFd> fds;
  };
  absl::Status Keep(const shm::Reply& reply, const std::vector<int>& fds, size_t owed);

  std::deque<Packet> waiting_;
  size_t waiting_fds_ = 0;
};

}  // namespace spccl::daemon
