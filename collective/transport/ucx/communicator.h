// A communicator's data path: its operations' transports, and what arrives for them.
//
// Frames of one operation on one stream (link and sender's worker) carry an index; they are handed
// to the sink in its order, once each, by the thread of the worker that received them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/transport.h"
#include "collective/transport/ucx/link.h"
#include "collective/transport/ucx/wire.h"

namespace spccl::transport::ucx {

struct OperationOptions {
  // Of the communicator: each opened operation has a higher one than those before it, on all nodes
  // the same.
  uint64_t sequence = 0;
  OperationFacts facts;
  // No frame of the operation is larger; <= FramePool::kLargestFrame.
  uint64_t largest_frame_bytes = 0;
};

// Not for users; see Communicator.
struct CommunicatorState : std::enable_shared_from_this<CommunicatorState> {
  // A frame that waits for those before it.
  struct Waiting {
    Tag tag;
    Frame frame;
  };
  struct Stream {
    uint64_t next = 0;
    std::map<uint64_t, Waiting> waiting;  // by index
  };
  struct Failure {
    uint32_t rank;
    absl::Status reason;
    // For an operation that meets it. Whatever broke, to this node's ranks it is another one's
    // failure, as a rank's death is.
    absl::Status AsLoss() const;
  };
  struct Operation {
    bool opened = false, stopped = false, failure_told = false;
    OperationFacts facts;
    uint64_t largest_frame_bytes = 0;
    Sink* sink = nullptr;  // null before Start
    std::optional<Failure> failure;
    // By link:
    std::vector<std::optional<OperationFacts>> said;
    std::vector<uint64_t> kept_bytes;  // counted on the link
    std::vector<std::map<uint32_t, Stream>> streams;
    std::vector<std::thread::id> in_sink;  // one entry a call
  };

  Key128 key;
  std::vector<std::shared_ptr<Link>> link_of_rank;  // null: a rank of this node
  std::vector<std::shared_ptr<Link>> links;         // each once
  std::vector<uint32_t> rank_of_link;               // a rank behind it
  std::vector<Worker*> workers;

  std::mutex mutex;
  std::condition_variable left_sink;
  bool closed = false;
  std::optional<Failure> failure;
  std::optional<uint64_t> last_opened;
  std::map<uint64_t, std::shared_ptr<Operation>> operations;  // opened here, or heard of

  // Whether a frame that the peer holds ready is wanted; a lie fails the communicator.
  bool Wants(uint32_t worker, Link* link, const Message& message);
  // Takes a kOpen or kFrame. An error is one of the whole link; others fail the communicator.
  absl::Status OnMessage(uint32_t worker, Link* link, const Message& message, Frame frame);
  void OnLinkFailed(Link* link, const absl::Status& reason);
  void OnRoom();

  absl::StatusOr<std::shared_ptr<Operation>> Open(const OperationOptions& options);
  void Start(const std::shared_ptr<Operation>& operation, Sink* sink);
  void Stop(uint64_t sequence, Operation* operation);
  void Close();

  // The following require the lock; those that take it as a parameter let go of it while they call
  // a sink.
  using Lock = std::unique_lock<std::mutex>;
  std::shared_ptr<Operation> FindLocked(uint64_t sequence, bool* finished);
  absl::Status CheckLocked(uint32_t worker, size_t link, const Operation* operation,
                           const Message& message) const;
  absl::Status MismatchLocked(const Operation& operation, size_t link) const;
  absl::Status KeepLocked(size_t link, Operation* operation, const Message& message);
  void ForgetKeptLocked(Operation* operation);
  void Drain(Lock* lock, Operation* operation, size_t link, uint32_t stream);
  void Fail(Lock* lock, uint32_t rank, const absl::Status& reason);
  void FailOperation(Lock* lock, Operation* operation, uint32_t rank, const absl::Status& reason);
  void TellFailure(Lock* lock, Operation* operation);
  void LeaveSinkLocked(Operation* operation);
  void StartOn(uint32_t worker, Operation* operation);
  size_t IndexOf(const Link* link) const;
};

// Owner: closes in the destructor; what its operations sent still reaches the peers. Its transports
// are stopped before. Thread-safe.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<CommunicatorState> state) : state_(std::move(state)) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // The transport of one operation, and word to the peers that it may be sent now. Fails if a peer
  // is gone, or has called something else (the error says both).
  //
  // A transport sends to ranks of other nodes only (see transport/mesh for both).
  // A transport's Stop ends deliveries to its sink; frames that its Send took still travel.
  absl::StatusOr<std::unique_ptr<Transport>> OpenOperation(const OperationOptions& options);

 private:
  const std::shared_ptr<CommunicatorState> state_;
};

}  // namespace spccl::transport::ucx
