// A communicator's state: who has joined, which operations wait for whom, which one runs next.
//
// Of a communicator over several nodes this daemon sees its own ranks' operations only: one is
// ready when all ranks of this node have submitted it. Of the others it knows where they are and
// when they leave. The root's daemon, which takes all ranks in, knows them from their joining, the
// others from Meet().
//
// No I/O and no clock of its own: the core thread tells it the time and does what it returns. So
// every deadline is tested with made-up times.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/policy/settings.h"
#include "collective/runtime/rank_buffers.h"
#include "daemon/completion_port.h"
#include "daemon/control.h"
#include "daemon/reaper.h"
#include "daemon/relay.h"
#include "daemon/sequence_window.h"

namespace spccl::daemon {

// One rank's part of an operation. Keeps what it needs alive: memory and the way back.
struct RankPart {
  OpDesc op;
  uint64_t ticket = 0;
  int64_t posted_ns = 0;  // set by Submit()
  uint32_t handle = 0;    // the communicator's number in the rank's session
  runtime::RankBuffers buffers;
  std::shared_ptr<const void> send_owner, recv_owner;
  // Of the session's order memory; null: the rank waits for its completion only. It is in `buffers`
  // too where GPUs run the operation, whose task stores `done` itself.
  std::shared_ptr<const runtime::GpuOrder> order;
  std::shared_ptr<Relay> relay;  // as in buffers; null: none
  std::shared_ptr<CompletionPort> port;

  // Tells the rank that its part has ended. Any thread. As CompletionPort::Complete.
  bool Complete(const absl::Status& status) const;
};

// An operation that all ranks have submitted.
struct ReadyOperation {
  uint64_t sequence = 0;
  std::vector<RankPart> parts;  // of the local ranks, ascending: see Communicator::local_ranks()
  absl::Status mismatch;        // ranks called different operations: complete all with this
  int64_t first_arrival_ns = 0, last_arrival_ns = 0;
};

// A part that must be completed now.
struct Outcome {
  RankPart part;
  absl::Status status;
};

// Why a communicator cannot go on.
struct CommFailure {
  absl::Status status;
  int culprit_rank = -1;
  std::string origin = {};  // the name of the node that knew it first; empty: this one
  bool expected = false;  // the end of its job or of the daemon, not a fault: nothing to look into
};

class Communicator {
 public:
  // kConnecting: all ranks are known, and they are on several nodes, which connect.
  enum class State : uint8_t { kForming, kConnecting, kReady, kFailed };
  static constexpr size_t kStateCount = 4;

  struct Member {
    uint64_t session_id = 0;  // 0: a rank of another node
    uint32_t handle = 0;
    pid_t pid = 0;
    uint64_t request_id = 0;  // of its CommInit
    policy::Overrides wishes = {};
    std::string node = {};  // the name of its node; empty: this one
    bool local() const { return session_id != 0; }
  };

  // `root`: the daemon where all ranks join, for people; empty if it is this one.
  Communicator(uint64_t id, std::string job_id, uid_t uid, uint32_t ranks, std::string root = "")
      : id_(id), job_id_(std::move(job_id)), uid_(uid), root_(std::move(root)), seats_(ranks) {}

  uint64_t id() const { return id_; }
  const std::string& job_id() const { return job_id_; }
  uid_t uid() const { return uid_; }
  // While no local rank has joined.
  void SetOwner(std::string job_id, uid_t uid) {
    job_id_ = std::move(job_id);
    uid_ = uid;
  }
  uint32_t ranks() const { return static_cast<uint32_t>(seats_.size()); }
  State state() const { return state_; }
  const absl::Status& error() const { return error_; }
  const policy::Overrides& wishes() const { return wishes_; }
  const Member& member(uint32_t rank) const { return seats_[rank].member; }
  bool joined(uint32_t rank) const { return seats_[rank].joined; }
  bool left(uint32_t rank) const { return seats_[rank].left; }
  // Of a remote rank that has left: the first operation that it does not take part in.
  uint64_t left_at(uint32_t rank) const { return seats_[rank].left_at; }
  // Ascending; complete once the communicator is ready.
  const std::vector<uint32_t>& local_ranks() const { return local_ranks_; }
  bool forming() const { return state_ == State::kForming || state_ == State::kConnecting; }
  // Nobody uses it any more and nothing runs: it may be forgotten.
  bool abandoned() const;
  // "rank 2 (pid 123)", "rank 2 (pid 123 on node-b)"
  std::string NameOfRank(uint32_t rank) const;
  // "rank 2 (pid 123), rank 3 (pid 124)"; cut after a few.
  std::string NamesOf(const std::vector<uint32_t>& ranks) const;

  // Takes a rank in; the last one makes the communicator ready, or connecting if some are remote.
  // An error fails the whole forming (the caller fails the communicator): the number is taken, or
  // `ranks` or wishes differ.
  absl::Status Join(uint32_t rank, uint32_t ranks, const Member& member, int64_t deadline_ns);
  // The root's word on who the ranks are, by rank; those of this node are as they joined.
  // Connecting from then on. An error if it contradicts what is known.
  absl::Status Meet(const std::vector<Member>& members);
  // For people, while connecting: "node-b to connect".
  void SetWaitingFor(std::string what) { waiting_for_ = std::move(what); }
  // All nodes are connected: it is ready.
  void Open();

  // A rank's part arrives. `error`: the part cannot run; it and the other ranks' parts complete
  // with errors (ResourceExhausted, a quota of the job's, with the same one). Returns what is to be
  // completed at once. An error status means that no correct client sends this sequence: the
  // session must end.
  absl::StatusOr<std::vector<Outcome>> Submit(uint32_t rank, uint64_t sequence, RankPart part,
                                              absl::Status error, int64_t now_ns);

  // The next operation in order, if all ranks have submitted it and no other runs. It counts as
  // running until FinishRunning().
  std::optional<ReadyOperation> TakeReady(int64_t now_ns);
  void FinishRunning(int64_t now_ns);
  bool running() const { return running_; }

  // A rank destroys its communicator or is gone: `how`, for those that miss it. It submits nothing
  // more; what it has submitted still counts.
  void Leave(uint32_t rank, std::string how = "has left the communicator");
  // The same of a rank of another node, which has submitted all operations below `sequence`.
  void LeaveRemote(uint32_t rank, uint64_t sequence, std::string how);
  // Whether a local rank has submitted what has not been started.
  bool Waits(uint32_t rank) const { return NextOf(rank) > head_; }
  // The first operation that a local rank has not submitted.
  uint64_t NextOf(uint32_t rank) const { return seats_[rank].window.base(); }

  // Whether it must fail now: a deadline has passed, or an operation waits for a rank that has
  // left.
  std::optional<CommFailure> Check(int64_t now_ns, int64_t op_timeout_ns) const;

  // Fails it; no operation starts any more. Returns what is to be completed: the parts that wait.
  // Does nothing if it has failed before.
  std::vector<Outcome> Fail(const CommFailure& failure);

  // Of the next operation to start.
  uint64_t next_sequence() const { return head_; }

  // For people: "waiting for rank 2 (pid 123)" and the like.
  std::string PhaseOf(uint32_t rank) const;
  // While it forms or connects: what it waits for.
  std::string FormingFor() const;
  // Operations that do not run yet, the next to run first, at most `most`. Valid until the next
  // change.
  struct Waiting {
    uint64_t sequence = 0;
    const OpDesc* op = nullptr;                        // of the lowest rank; null: all have failed
    std::vector<std::pair<uint32_t, int64_t>> posted;  // by rank, and when
  };
  std::vector<Waiting> WaitingOps(size_t most) const;
  uint32_t queued_ops() const { return static_cast<uint32_t>(pending_.size()); }
  // Whether some local rank has submitted the operation, which has not started.
  bool IsPending(uint64_t sequence) const { return pending_.contains(sequence); }

 private:
  struct Seat {
    bool joined = false;
    bool left = false;
    uint64_t left_at = 0;  // remote: the first operation that it does not take part in
    std::string how;       // it left
    Member member;
    SequenceWindow window;
  };
  struct Operation {
    std::vector<std::optional<RankPart>> parts;  // by rank; empty once completed
    std::vector<bool> arrived;
    uint32_t arrivals = 0;
    int64_t first_arrival_ns = 0, last_arrival_ns = 0;
    absl::Status poison;  // a part that cannot run
  };

  absl::Status CheckWishes(uint32_t rank, const Member& member) const;
  std::vector<Outcome> Poison(Operation& operation, uint32_t rank, RankPart part,
                              const absl::Status& error);
  absl::Status FindMismatch(uint64_t sequence, const std::vector<RankPart>& parts) const;
  // Whether a rank that has left is missing in the operation; `operation` empty: it runs already.
  bool Misses(const Seat& seat, uint32_t rank, uint64_t sequence, const Operation* operation) const;
  // The local ranks that the head operation waits for.
  std::vector<uint32_t> MissingAtHead() const;
  std::vector<uint32_t> NotJoined() const;
  std::optional<CommFailure> CheckForming(int64_t now_ns) const;
  std::optional<CommFailure> CheckLeavers() const;

  const uint64_t id_;
  std::string job_id_;
  uid_t uid_;
  const std::string root_;
  State state_ = State::kForming;
  absl::Status error_;
  policy::Overrides wishes_;
  std::vector<Seat> seats_;  // by rank
  std::vector<uint32_t> local_ranks_;
  uint32_t joined_count_ = 0;
  uint32_t left_count_ = 0;   // of the local ranks
  bool anyone_left_ = false;  // local or remote
  std::string waiting_for_;
  int64_t forming_deadline_ns_ = 0;        // the earliest of the members' deadlines; 0: none
  std::map<uint64_t, Operation> pending_;  // by sequence; all are >= head_
  uint64_t head_ = 0;                      // the next operation to run
  int64_t head_since_ns_ = 0;              // when it became the next
  bool running_ = false;
  int64_t running_since_ns_ = 0;
};

constexpr std::string_view NameOf(Communicator::State state) {
  constexpr std::string_view kNames[Communicator::kStateCount] = {"forming", "connecting", "ready",
                                                                  "failed"};
  return kNames[static_cast<size_t>(state)];
}

// "all_reduce count=4 float32 sum"
std::string Describe(const OpDesc& op);

}  // namespace spccl::daemon
