// What a World is behind its interface. Not for users; see world.h.
//
// One lock guards it all. What is to be told to sinks is noted and told by Leave(), without the
// lock; messages to this node itself are taken there, too. Frames are delivered by the issuing
// thread of their receiver, which keeps their order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/transport/nccl/member.h"
#include "collective/transport/nccl/world.h"

namespace spccl::transport::nccl {

// What a frame counts for in a window: small ones are no less work.
constexpr uint64_t CostOf(uint64_t bytes) {
  return bytes + 4096;
}
// A frame's first bytes, where the host can read them beside what lies in a GPU's memory.
void CopyHead(const Frame& frame, std::array<std::byte, kHeadBytes>* head);
void SetHead(const std::array<std::byte, kHeadBytes>& head, Frame* frame);

// Frames for one rank that are with the root or NCCL: enough for all groups that may be open. Part
// of the protocol: the root refuses more.
inline constexpr size_t kMostReady = 1024;
inline constexpr uint64_t kMostReadyBytes = uint64_t{512} << 20;

struct WorldState : std::enable_shared_from_this<WorldState> {
  using Edge = std::pair<uint32_t, uint32_t>;  // from and to, of the communicator's ranks
  using TagKey = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t, Phase>;
  static TagKey KeyOf(const Tag& tag) { return {tag.from, tag.to, tag.lane, tag.chunk, tag.phase}; }

  struct Failure {
    uint32_t rank;  // or kNobody
    absl::Status reason;
  };
  // What NCCL found on one of this node's ranks: another process is gone, which one is not known.
  struct Unnamed {
    uint32_t found_by;
    absl::Status reason;
    int64_t since_ns;
  };

  // Frames to one rank from another.
  struct OutFlow {
    std::deque<uint64_t> waiting;  // their bytes are there; in the order of Send
    std::deque<uint64_t> ahead;    // to be announced before
    uint64_t charged_bytes = 0;    // announced, not gone yet
    uint64_t ahead_bytes = 0;      // the same of what was announced before it was there
  };

  // What the sink is told of a frame: that it is on its way, or that it is here.
  struct Arrival {
    Tag tag;
    uint64_t bytes = 0;
    bool is_here = false;
    Frame frame;
  };

  struct Operation {
    Key128 communicator;
    OperationOptions options;
    std::shared_ptr<const std::vector<uint32_t>> world_rank_of;
    Sink* sink = nullptr;  // null before Start
    bool stopped = false, failure_told = false;
    std::optional<Failure> failure;  // its rank is the communicator's
    std::map<Edge, OutFlow> out;
    std::map<Edge, uint64_t> in_bytes;             // announced here, not ready
    std::map<TagKey, std::deque<uint64_t>> ahead;  // announced, or to be, before it was there
    size_t outgoing = 0;                           // how many of the world's outgoing are its
    std::map<uint32_t, uint64_t> unsent_bytes;     // by receiver: handed to us, not gone yet
    std::set<uint32_t> wants_room;
    bool tell_room = false;
    std::map<uint32_t, std::deque<Arrival>> inbox;  // by rank of the world
    std::vector<std::thread::id> in_sink;           // one entry a call
  };
  using OperationPtr = std::shared_ptr<Operation>;

  struct Peer {
    std::optional<uint64_t> opened;  // this operation and all before it
    bool closed = false;
    std::map<uint64_t, uint64_t> said;  // plans of operations that are not open here, by sequence
  };
  struct CommunicatorState {
    std::shared_ptr<const std::vector<uint32_t>> world_rank_of;
    bool closed = false;
    std::optional<uint64_t> last_opened;
    std::map<uint32_t, Peer> peers;  // by node: all that have ranks, with this one
    std::map<uint64_t, OperationPtr> operations;
  };

  struct Outgoing {
    OperationPtr operation;
    Tag tag;
    uint32_t from = 0;     // of the world
    uint32_t to_node = 0;  // which of its GPUs the receiver says
    uint64_t bytes = 0;
    Frame frame;
    bool announced = false, offered = false, ahead = false;
  };
  struct Incoming {
    OperationPtr operation;
    Tag tag;
    uint32_t from = 0, to = 0;
    uint64_t bytes = 0;
    Frame frame;
    bool offered = false, ready = false;
    std::array<std::byte, kHeadBytes> head = {};
  };
  using IncomingKey = std::pair<uint32_t, uint64_t>;  // node, its id
  // What came of a frame: its size alone, or that its bytes are there. Only the latter makes it
  // ready: sizes may be told in another order.
  struct Pending {
    IncomingKey key;
    bool offers = false;
  };

  // What a GroupPart keeps.
  struct PartFrames {
    struct Item {
      bool sends = false;
      Outgoing out;
      Incoming in;
    };
    std::vector<Item> items;
  };

  struct Slot {
    WorldOptions::Local local;
    std::shared_ptr<Member> member;
    bool up = false, ended = false;
    bool poll_posted = false;
    bool accept_posted = false;
    std::deque<Pending> pending;  // in the order in which they were announced or offered
    size_t ready = 0;
    uint64_t ready_bytes = 0;
  };

  explicit WorldState(WorldOptions given);
  using Lock = std::unique_lock<std::mutex>;

  // world_life.cc
  void Begin();
  bool End();
  void RunTimer();
  // NCCL is to begin, if it has not.
  void WantLocked();
  // The root's: makes the world's name and tells it.
  void Name(Lock* lock);
  void OnMemberUp(Slot* slot);
  void OnMemberFailed(uint32_t rank, const absl::Status& status, bool another_gone);
  void FailUnnamedIfLate(Lock* lock);
  void Fail(Lock* lock, uint32_t rank, const absl::Status& reason, std::optional<uint32_t> told_by);
  void TellPeers(uint32_t rank, const absl::Status& reason, std::optional<uint32_t> but);
  std::string NameOf(uint32_t rank) const;
  absl::Status AsLossLocked() const;
  // Of an operation's ranks the one that stands for what was lost, or kNobody.
  uint32_t LostOfLocked(const Operation& operation) const;
  void LoseLocked(const OperationPtr& operation);
  // Takes messages to this node, tells sinks; with the lock again at the end.
  void Leave(Lock* lock);
  void Tell(Lock* lock, const OperationPtr& operation);
  // Without the lock; End() waits for it.
  void CallOwner(Lock* lock, const std::function<void()>& call);
  void OnMessage(uint32_t node, std::string_view bytes);
  absl::Status TakeLocked(uint32_t node, const Message& message);
  void StartMembersLocked(const UniqueId& id);

  // world_operations.cc
  absl::Status OpenCommunicator(const Key128& key, std::vector<uint32_t> world_rank_of);
  void CloseCommunicator(const Key128& key);
  absl::StatusOr<OperationPtr> Open(const Key128& key, const OperationOptions& options);
  void Start(const OperationPtr& operation, Sink* sink);
  void Stop(const OperationPtr& operation);
  absl::Status TakeOpen(uint32_t node, const Message& message);
  absl::Status TakeClose(uint32_t node, const Message& message);
  void CheckPlanLocked(const OperationPtr& operation, uint32_t node, uint64_t said);
  void FailOperationLocked(const OperationPtr& operation, uint32_t rank, const absl::Status& why);
  void ForgetIfOverLocked(const OperationPtr& operation);

  // world_send.cc
  absl::Status Send(const OperationPtr& operation, const Tag& tag, Frame frame);
  absl::Status AnnounceAhead(const OperationPtr& operation, std::span<const FrameSize> sizes);
  bool HasRoom(const OperationPtr& operation, uint32_t to);
  void PumpLocked(const OperationPtr& operation, const Edge& edge);
  void PumpAllLocked(const OperationPtr& operation);
  void DropWaitingLocked(const OperationPtr& operation, OutFlow* flow);
  absl::Status TakeDeclined(uint32_t node, const Message& message);
  // It has left, by whatever way.
  void ReleaseLocked(const Outgoing& gone);
  uint64_t AddOutgoingLocked(const OperationPtr& operation, const Tag& tag, uint64_t bytes);

  // world_receive.cc
  absl::Status TakeAnnounce(uint32_t node, const Message& message);
  absl::Status AddIncomingLocked(uint32_t node, const OperationPtr& operation,
                                 const Announced& frame);
  void PostAcceptLocked(Slot* slot);
  void Accept(Slot* slot);
  bool AcceptNextLocked(Lock* lock, Slot* slot, std::vector<Transfer>* ready,
                        std::vector<OperationPtr>* told,
                        std::map<uint32_t, std::vector<uint64_t>>* declined);
  void DeclineLocked(uint32_t node, const std::vector<uint64_t>& ids);
  // All of the operation but what the root knows of.
  void DeclineAllLocked(const OperationPtr& operation);
  void Deliver(Lock* lock, const OperationPtr& operation, uint32_t rank);
  void LeaveSinkLocked(Operation* operation);

  // world_groups.cc
  absl::Status TakeReady(uint32_t node, const Message& message);
  absl::Status TakeDone(uint32_t node, const Message& message);
  absl::Status TakeGroup(const Message& message);
  void CutGroupsLocked();
  absl::Status AddToPartsLocked(const Transfer& transfer,
                                std::map<uint32_t, std::shared_ptr<GroupPart>>* parts);
  void OnPartDone(Slot* slot, const std::shared_ptr<GroupPart>& part);

  void PostLocked(uint32_t node, Message message);
  Slot* SlotOf(uint32_t rank);  // null: not of this node
  // The GPU that a lane of one of this node's ranks is on.
  static uint32_t GpuOf(const Operation& operation, uint32_t rank, uint64_t lane);
  uint32_t NodeOf(uint32_t rank) const { return options.node_of_rank[rank]; }
  uint32_t RankOf(uint32_t node) const;  // the lowest
  CommunicatorState* FindCommunicator(const Key128& key);
  OperationPtr FindOperation(const Key128& key, uint64_t sequence);

  const WorldOptions options;
  const std::set<uint32_t> nodes;  // of the world

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Slot>> slots;  // fixed after Begin
  std::optional<Failure> failure;
  std::optional<Unnamed> unnamed;    // whoever names the node makes it a failure
  std::optional<int64_t> wanted_ns;  // since when NCCL is; empty: not yet
  bool named = false, started = false, closing = false, stop_timer = false;
  bool left_behind = false;
  std::map<Key128, CommunicatorState> communicators;
  std::deque<Message> to_self;
  std::deque<OperationPtr> to_tell;
  bool tell_up = false, tell_failure = false;
  size_t owner_calls = 0;  // on_up and on_failed that are running
  // Who is to blame for the error that a message was taken with, if not the node that it came from.
  std::optional<uint32_t> blamed;

  uint64_t last_id = 0;
  std::map<uint64_t, Outgoing> outgoing;
  std::map<IncomingKey, Incoming> incoming;

  uint64_t last_group = 0;                    // that came
  std::map<uint64_t, size_t> parts_of_group;  // how many of this node's ranks are not through
  Sequencer sequencer;                        // the root's
  std::map<uint32_t, size_t> ready_of_rank;   // with the sequencer, by receiver

  std::thread timer;
};

}  // namespace spccl::transport::nccl
