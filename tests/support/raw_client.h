// A client that speaks the session protocol slot by slot, for tests of the daemon: it also says
// what libspccl never would. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/memory.h"
#include "base/unique_fd.h"
#include "proto/shm/session.h"
#include "proto/shm/slot.h"
#include "proto/shm/socket.h"

namespace spccl::testing {

inline constexpr int64_t kPatienceMs = 10'000;  // far above what anything takes

// So many float32 of a rank are above the inline limit: a channel thread runs the operation.
inline constexpr uint64_t kLargeCount = 1 << 16;

// Memory that client and daemon map.
struct RawBuffer {
  SharedMapping mapping;
  uint64_t id = 0;
  template <typename T>
  T* as(uint64_t offset = 0) {
    return reinterpret_cast<T*>(mapping.data() + offset);
  }
};

class RawClient {
 public:
  // Connects, and no more.
  static absl::StatusOr<RawClient> Connect(const std::string& socket_path);
  // Connects and says Hello.
  static absl::StatusOr<RawClient> Open(const std::string& socket_path);

  absl::Status Hello(uint16_t major = shm::kSessionMajor);

  // A request with magic, type and a fresh id.
  shm::Request Make(shm::RequestType type);
  absl::Status Send(const shm::Request& request, const std::vector<int>& fds = {});
  absl::Status SendBytes(const void* data, size_t bytes, const std::vector<int>& fds = {});
  // The reply with this id; what else comes is kept in notices(). DeadlineExceeded, or Unavailable
  // if the daemon has hung up.
  absl::StatusOr<shm::Reply> AwaitReply(uint64_t request_id, int64_t timeout_ms = kPatienceMs);
  absl::StatusOr<shm::Reply> Call(const shm::Request& request, const std::vector<int>& fds = {});
  absl::StatusOr<shm::Reply> AwaitNotice(shm::ReplyType type, int64_t timeout_ms = kPatienceMs);
  // Whether the daemon ends the session within the time. Reads on until then.
  bool AwaitHangup(int64_t timeout_ms = kPatienceMs);

  absl::StatusOr<std::string> UniqueId();
  shm::Request MakeCommInit(const std::string& unique_id, uint32_t ranks, uint32_t rank,
                            uint32_t deadline_ms = 0);
  absl::StatusOr<RawBuffer> Allocate(size_t bytes);
  // This process's, so that addresses make sense.
  absl::Status HandOverMemory();

  // Writes the slot and rings. False: the ring is full.
  bool Push(const shm::Submission& slot);
  void Ring();
  std::optional<shm::Completion> AwaitCompletion(int64_t timeout_ms = kPatienceMs);

  shm::Segment* segment() { return reinterpret_cast<shm::Segment*>(segment_.data()); }
  uint64_t boot_id() const { return boot_id_; }
  int socket() const { return socket_.get(); }
  int doorbell() const { return doorbell_.get(); }
  uint64_t next_ticket = 1;

 private:
  explicit RawClient(UniqueFd socket) : socket_(std::move(socket)) {}
  absl::StatusOr<shm::Reply> Receive(int64_t deadline_ns, std::vector<UniqueFd>* fds = nullptr);

  UniqueFd socket_, doorbell_;
  SharedMapping segment_;
  std::optional<shm::Producer<shm::Submission>> producer_;
  std::optional<shm::Consumer<shm::Completion>> consumer_;
  std::deque<shm::Reply> notices_, replies_;
  uint64_t next_request_id_ = 1;
  uint64_t boot_id_ = 0;
};

// One client a rank, in one communicator.
struct RawRank {
  RawClient client;
  uint32_t handle = 0;
  uint64_t next_sequence = 0;
};
absl::StatusOr<std::vector<RawRank>> FormComm(const std::string& socket_path, uint32_t ranks);

// An all-reduce (sum of float32) from one offset to another of a buffer, with the next sequence and
// ticket.
shm::Submission AllReduceSlot(RawRank& rank, const RawBuffer& buffer, uint64_t count,
                              uint64_t send_offset, uint64_t recv_offset);

}  // namespace spccl::testing
