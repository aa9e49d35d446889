// One stream of spccl.v1.Peer, whichever side dialed: a bounded queue of messages to write, reads
// one at a time, and one end.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/spccl/v1/peer.grpc.pb.h"
#include "proto/spccl/v1/peer.pb.h"

namespace spccl::daemon::peers {

inline constexpr size_t kMaxQueuedMessages = 4096;
inline constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

class Stream;

// Called by gRPC's threads, never two at a time. They must not wait.
struct StreamHandler {
  // The next message is read only after Resume().
  std::function<void(v1::PeerMessage)> on_message;
  // Last. At the dialer, what the acceptor (or gRPC) says; at the acceptor OK. It must see to it
  // that the stream, with its channel, is destroyed by another thread: gRPC's own may be one that
  // the end of the last channel joins.
  std::function<void(absl::Status, std::shared_ptr<Stream>)> on_end;
};

// Thread-safe. Keeps itself until its end, when it gives itself to on_end.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  virtual ~Stream() = default;

  // False: the queue is full. After the end, or End(), the message is dropped.
  bool Write(v1::PeerMessage message);
  // Reads on; once after each on_message.
  void Resume();
  // Writes what was taken, then ends the stream: `status` is what the dialer is told by the
  // acceptor; a dialer's is not told.
  void End(const absl::Status& status);
  // Ends it at once.
  void Abort();

  size_t queued() const;
  // When the peer was heard last, on the monotonic clock; at first, when the stream was made.
  // Relaxed: one number, which orders nothing else.
  int64_t last_heard_ns() const { return last_heard_ns_.load(std::memory_order_relaxed); }

  // "ipv4:10.0.0.2:40962", of an accepted stream.
  const std::string& remote() const { return remote_; }
  // What the certificate of an accepted stream's dialer is made out to; empty without TLS.
  const std::vector<std::string>& certificate_names() const { return certificate_names_; }

 protected:
  Stream();

  // What the two sides do differently. Called with mutex_ held.
  virtual void StartReadOp(v1::PeerMessage* message) = 0;
  virtual void StartWriteOp(const v1::PeerMessage* message) = 0;
  virtual void EndOp(const absl::Status& status) = 0;  // once
  virtual void CancelOp() = 0;
  virtual void ReadsEndedOp() = 0;  // once: no read will succeed any more
  // Whether EndOp() must be called even of a stream that the other side has ended, and no read may
  // be started after it.
  virtual bool must_end() const = 0;

  // Takes hold of itself, and reads. Before anything else.
  void Begin(StreamHandler handler);
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  void Done(const absl::Status& status);

  std::string remote_;
  std::vector<std::string> certificate_names_;

 private:
  void WriteNext();  // with mutex_ held

  std::atomic<int64_t> last_heard_ns_;
  v1::PeerMessage incoming_;

  StreamHandler handler_;  // from Begin to Done, which calls it last
  mutable std::mutex mutex_;
  std::shared_ptr<Stream> self_;
  std::deque<v1::PeerMessage> queue_;  // its front is being written
  size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool broken_ = false;  // nothing can be written any more
  bool ending_ = false;  // End() was called
  bool end_done_ = false;
  bool reads_ended_ = false;
  bool done_ = false;
  absl::Status end_status_;
};

// Dials `target`, a gRPC name. The handler may be called before this returns.
std::shared_ptr<Stream> DialStream(const std::string& target,
                                   const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                   StreamHandler handler);

// The service's side. `accept` is called by gRPC's threads for each stream that comes, and gives
// its handler; no message comes before it has returned.
class AcceptingService final : public v1::Peer::CallbackService {
 public:
  using Accept = std::function<StreamHandler(const std::shared_ptr<Stream>&)>;
  explicit AcceptingService(Accept accept) : accept_(std::move(accept)) {}

  grpc::ServerBidiReactor<v1::PeerMessage, v1::PeerMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const Accept accept_;
};

}  // namespace spccl::daemon::peers
