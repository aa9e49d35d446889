// The process's session with the node's daemon: its socket, its rings, and the thread that listens.
//
// The session lives until the socket hangs up or the daemon breaks the protocol; then every wait in
// it ends with the reason, and stays ended: a new session is another object.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/rings.h"
#include "proto/shm/session.h"
#include "proto/shm/socket.h"

namespace spccl::client {

// Thread-safe. Errors that mean "the daemon is not there" are Unavailable.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // A request that was sent and is to be awaited.
  struct Call;

  static constexpr int64_t kReplyTimeoutNs = 30'000'000'000;

  // Connects to the daemon's socket, says hello and hands over this process's memory. Blocks at
  // most kReplyTimeoutNs for each of the two.
  static absl::StatusOr<std::shared_ptr<Session>> Open(const std::string& socket_path);
  ~Session();

  // Sends a request; `fds` go beside it and stay the caller's. magic and request_id are filled in.
  absl::StatusOr<std::shared_ptr<Call>> Start(shm::Request request, std::vector<int> fds = {});
  // Waits for the reply. A reply with an error is an error. `phase` says in messages what was being
  // waited for. If time runs out, a communicator that is made later all the same is aborted.
  absl::StatusOr<shm::Reply> Await(const std::shared_ptr<Call>& call, const char* phase,
                                   int64_t timeout_ns = kReplyTimeoutNs);
  // Start and Await.
  absl::StatusOr<shm::Reply> Ask(const shm::Request& request, const char* phase,
                                 std::vector<int> fds = {});
  // Sends a request whose reply nobody waits for. Takes no memory.
  void Tell(shm::Request request) noexcept;
  // Nobody waits for the reply any more: what is made for it is ended.
  void Abandon(const std::shared_ptr<Call>& call) noexcept;
  // As Ask; of a reply with one descriptor beside it. ResourceExhausted: this process may open no
  // more, and it is lost.
  absl::StatusOr<UniqueFd> AskForDescriptor(const shm::Request& request, const char* phase);

  Rings& rings() { return *rings_; }
  // The minor version of the protocol that both sides speak.
  uint16_t minor() const { return minor_; }
  // Differs between the sessions of a process.
  uint64_t serial() const { return serial_; }
  // OK while the session lives, else why it ended.
  absl::Status Health() const;
  // Whether a new communicator may be made here: also false if the daemon has just hung up, which
  // the listener is about to see.
  bool IsOpen() const;
  // OK, or why the daemon says that the communicator has failed.
  absl::Status CommHealth(uint32_t comm_id) const;
  void ForgetComm(uint32_t comm_id);

  // Whether the daemon may be given addresses in ordinary memory of this process (found out at the
  // start; no under SPCCL_FORCE_STAGING=1).
  bool can_attach() const { return can_attach_; }
  // SPCCL_FORCE_STAGING=1: neither may it be given memory of GPUs.
  bool forces_staging() const { return forces_staging_; }
  // From how many bytes on an all-reduce on ordinary memory is offered a relay.
  size_t least_relay_bytes() const { return least_relay_bytes_; }

  // Communicators that share the rings; each may have only so many operations outstanding that
  // every other one still finds room, so that none can starve those it waits for.
  void AddComm() { comms_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveComm() { comms_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t Window() const;
  // What of so many a communicator may have, so that all of them find some; at least one.
  uint32_t ShareOf(uint32_t total) const;

  // Called once, when the session has died and its operations have ended; at once if it has. On any
  // thread, with no lock held.
  void WhenDead(std::function<void()> call);

  // The socket, for the child of a fork() to close its copy.
  int socket() const { return socket_.get(); }

 private:
  Session(std::string path, UniqueFd socket, pid_t daemon_pid);
  absl::Status Hello();
  absl::Status StartListening();
  absl::StatusOr<bool> HandOverMemory();
  void Listen();
  absl::Status DaemonIs(const char* what) const;
  absl::Status ListenUntilEnd();
  void Dispatch(const shm::Reply& reply, shm::Packet packet);
  void AbandonLocked(const Call& call, uint64_t value) noexcept;
  void Die(const absl::Status& reason);

  const std::string path_;
  const UniqueFd socket_;
  const pid_t daemon_pid_;
  const uint64_t serial_;
  uint16_t minor_ = 0;
  bool can_attach_ = false;
  bool forces_staging_ = false;
  size_t least_relay_bytes_ = 0;
  std::unique_ptr<Rings> rings_;
  std::atomic<uint32_t> comms_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_request_ = 1;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;
  std::map<uint32_t, absl::Status> failed_comms_;
  absl::Status dead_;
  bool has_ended_ = false;  // and its operations
  std::vector<std::function<void()>> when_dead_;
  absl::Status goodbye_;  // why the daemon is about to end the session, once it has said so

  std::thread listener_;
};

}  // namespace spccl::client
