// One rank's membership in a communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/codec.h"
#include "client/memory.h"
#include "client/operation.h"
#include "client/relay.h"
#include "client/session.h"
#include "client/stream.h"

namespace spccl::client {

// Thread-safe.
class Comm {
 public:
  // Of a communicator that the daemon has just made.
  Comm(std::shared_ptr<Session> session, uint32_t id, int rank, int ranks);

  uint32_t id() const { return id_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Asked for at the first call (blocks for the daemon's reply); null: there are none.
  Relay* relay();
  // Held from the first half of a call on GPU memory to its second (client/gpu_call.h): the order
  // on the stream, of calls of several threads, is the communicator's.
  std::mutex& gpu_order() { return gpu_order_; }
  // Runs the operations that name no stream.
  const std::shared_ptr<Stream>& null_stream() const { return null_stream_; }

  // OK, or why no operation can run: it was aborted here, has failed, or the session is dead.
  absl::Status Health() const;
  // Health, and not being destroyed: whether calls are accepted.
  absl::Status Accepts() const;

  // Gives the operation the next place in this rank's order; keeps it until it is finished. An
  // error if the communicator is being destroyed.
  absl::Status Issue(const std::shared_ptr<Operation>& op, std::weak_ptr<Stream> stream);
  // Whether the operation at this place may be submitted now: so few are outstanding that every
  // earlier one finds room too, whichever stream it comes from.
  bool HasRoom(uint64_t sequence) const;
  void NoteCompleted() { completed_.fetch_add(1, std::memory_order_acq_rel); }
  // What an operation ends with of which the daemon says `result`: it may read a submission when it
  // has let go of the communicator already, and knows of none. Locks nothing: the rings are locked.
  absl::Status ResultOf(absl::Status result) const;

  // An operation on a GPU's memory has failed, whose caller waits for nothing: the communicator
  // counts as failed from now on. Any thread, with the rings locked.
  void NoteAsyncError(const absl::Status& error);

  // The order of operations has a gap, or an end: fails the communicator, here and on the other
  // ranks.
  void Break(const absl::Status& reason) noexcept;

  // Accepts no more calls, waits for the operations that were issued, and leaves; the second of two
  // callers finds nothing left to do.
  absl::Status Destroy();
  // Ends it for all ranks. Blocks until the daemon has let go of every buffer.
  absl::Status Abort();

  // spcclCommSetCodec.
  absl::Status SetCodec(const CodecWish& wish);
  // Whether the codec that was set here last is lossy.
  bool is_lossy() const { return is_lossy_.load(std::memory_order_relaxed); }

  // spcclCommRegister and spcclCommDeregister; a registration is known by its region.
  absl::StatusOr<std::shared_ptr<Region>> Register(MemoryTable* memory, void* data, size_t bytes);
  absl::Status Deregister(MemoryTable* memory, const std::shared_ptr<Region>& region);
  // Gives all registrations back.
  void DeregisterAll(MemoryTable* memory);

  // Kept as "FUNCTION: text" if there is one. Where there is no memory for that it is "out of
  // memory", as the calling thread's is.
  void SetLastError(absl::string_view text, const char* function = nullptr) noexcept;
  // Of the last call on this communicator that failed or told of a failure; if there was none, why
  // the communicator has failed. What came later must not hide the cause: ranks that leave after an
  // error fail the communicator once more.
  std::string LastError() const;

 private:
  struct Issued {
    std::shared_ptr<Operation> op;
    std::weak_ptr<Stream> stream;  // outlives the operation
  };

  // Waits for what was issued; false if time ran out.
  bool Flush(int64_t deadline_ns);
  void CancelQueued();
  absl::Status Leave(shm::RequestType how);

  const std::shared_ptr<Session> session_;
  const uint32_t id_;
  const int rank_, ranks_;
  const std::shared_ptr<Stream> null_stream_;

  std::mutex gpu_order_;
  std::once_flag relay_asked_;
  std::unique_ptr<Relay> relay_;

  const absl::Status aborted_here_ =
      absl::AbortedError("the communicator was aborted by this rank");
  std::atomic<bool> aborted_{false};  // by Abort()
  std::atomic<uint64_t> completed_{0};
  // Calls that race with a change of the codec may see either: relaxed.
  std::atomic<bool> is_lossy_{false};
  mutable std::mutex mutex_;
  uint64_t next_sequence_ = 0;
  std::deque<Issued> issued_;  // finished ones are dropped from the front
  absl::Status broken_;        // aborted here, or failed by a fault of ours
  absl::Status async_error_;
  bool closing_ = false;
  bool broke_ = false;  // by Break(), which has left, or is about to
  bool left_ = false;
  std::vector<std::shared_ptr<Region>> registrations_;
  std::string last_error_;
};

}  // namespace spccl::client
