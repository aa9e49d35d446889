// What the core thread owns: sessions with their buffers, communicators, jobs. Only that thread
// touches any of it, so nothing here has a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "collective/policy/density_watch.h"
#include "collective/policy/settings.h"
#include "collective/policy/tuning.h"
#include "collective/runtime/node_scope.h"
#include "collective/runtime/task.h"
#include "collective/transport/link_share.h"
#include "daemon/communicator.h"
#include "daemon/completion_port.h"
#include "daemon/control.h"
#include "daemon/event_loop.h"
#include "daemon/fair_queue.h"
#include "daemon/flight_log.h"
#include "daemon/gpu_memory.h"
#include "daemon/job_share.h"
#include "daemon/metrics/buffer_tally.h"
#include "daemon/metrics/telemetry.h"
#include "daemon/node_costs.h"
#include "daemon/nodes.h"
#include "daemon/outbox.h"
#include "daemon/peer.h"
#include "daemon/reaper.h"
#include "daemon/unique_ids.h"
#include "proto/shm/ring.h"
#include "proto/shm/slot.h"

namespace spccl::daemon {

// How a buffer has to do with a GPU.
enum class GpuKind : uint8_t { kNone, kIpc, kFd, kStaged };

// A registered buffer: mapped memory, a GPU's, or a range of the client's own (both empty).
struct Buffer {
  MappingRef mapping;
  GpuMemoryRef gpu_memory;
  GpuKind gpu_kind = GpuKind::kNone;
  cuda::Uuid gpu_id{};     // whose memory it is, or is copied through it
  uint64_t driver_id = 0;  // of a GPU's memory: in the client's driver
  uint64_t address = 0;    // in the client
  uint64_t size_bytes = 0;
  uint64_t memory_id = 0;  // equal for buffers that are the same memfd; 0: the client's own memory
  uint64_t uses = 0;

  metrics::BufferKind kind() const {
    if (gpu_kind == GpuKind::kIpc) return metrics::BufferKind::kCudaIpc;
    if (gpu_kind == GpuKind::kFd) return metrics::BufferKind::kCudaFd;
    if (gpu_kind == GpuKind::kStaged) return metrics::BufferKind::kStaged;
    return mapping ? metrics::BufferKind::kMapped : metrics::BufferKind::kAttach;
  }
};

// Which memfd a mapping is of: one file of one session is mapped once.
struct FileKey {
  dev_t device;
  ino_t inode;
  auto operator<=>(const FileKey&) const = default;
};
struct MappedFile {
  std::weak_ptr<const SharedMapping> mapping;
  uint64_t memory_id;
};

struct Membership {
  uint64_t comm_id;
  uint32_t rank;
};

struct Session {
  uint64_t id = 0;
  UniqueFd socket;
  Outbox outbox;  // of the socket
  Peer peer;
  EventLoop::Token socket_token = 0, pidfd_token = 0, doorbell_token = 0;
  std::string name;               // as the client calls itself; empty before its Hello
  int64_t hello_deadline_ns = 0;  // 0: it has said Hello
  absl::Status refusal;           // what its Hello is to be answered with

  UniqueFd doorbell;
  std::shared_ptr<CompletionPort> port;  // nullptr before Hello
  std::optional<shm::Consumer<shm::Submission>> submissions;

  uint32_t next_handle = 1;
  std::unordered_map<uint32_t, Membership> memberships;  // by handle
  std::unordered_map<uint64_t, Buffer> buffers;          // by id
  std::map<FileKey, MappedFile> files;
  uint64_t buffer_bytes = 0;
  uint32_t opening = 0;   // requests whose GPU memory is being opened
  UniqueFd order_memory;  // once it has been asked for
  OrderMapRef order;      // once it has been made
  std::shared_ptr<const runtime::ProcessMemory> memory;  // null before it has been handed over
};

// An operation that runs. Shared by the core thread, the task's DoneFn and the channel threads;
// `parts` are read by whoever ends the task and dropped by the core thread afterwards.
struct RunningOp {
  uint64_t comm_id = 0;
  uint64_t sequence = 0;
  uint64_t operation = 0;                                      // its name in spans
  std::vector<RankPart> parts;                                 // of this node's ranks, ascending
  std::vector<uint32_t> ranks;                                 // their numbers
  std::shared_ptr<const std::vector<std::string>> rank_names;  // of all ranks: "rank 2 (pid 123)"
  int64_t first_arrival_ns = 0, last_arrival_ns = 0, began_ns = 0;
  int64_t ended_ns = 0;  // written by whoever ends the task
  uint64_t payload_bytes = 0;
  std::shared_ptr<runtime::Task> task;  // refers back to this: the core thread drops it at the end
  // Why the core thread has cancelled it; written before `cancelled` is.
  absl::Status cancel_reason;
  std::atomic<bool> cancelled{false};
  // Set before the first completion is written: from then on no rank is missed.
  std::atomic<bool> ended{false};
  std::vector<uint32_t> broken_ranks;  // whose completion ring is corrupt
};

// One daemon of a communicator over several nodes.
struct NodeSeat {
  NodeInfo info;
  NodeId id = 0;  // 0: this one, or not known yet
  // Known to the root only.
  bool ready = false;
  NodeCosts costs;
  uint32_t gpus = 0;  // of the world, where the group has one
};

// A change of a communicator's tuning.
struct TuningChange {
  uint64_t epoch = 0;
  policy::Tuning tuning;
  uint64_t from_sequence = 0;      // the first operation that runs by it
  std::set<NodeId> waiting_for{};  // the leader's: who has not prepared
};

// What a communicator over several nodes has beside its ranks.
struct NodeGroup {
  CommKey key{};
  bool is_root = false;                         // all ranks join here
  std::map<NodeId, NodeHold> peers;             // all that must hear of a failure
  NodeId root = 0;                              // 0: this one
  std::map<uint32_t, NodeId> node_of_joined;    // at the root, while it forms: remote ranks
  std::map<NodeId, NodeCosts> costs_of_joined;  // likewise
  std::map<NodeId, GpuOffer> gpus_of_joined;    // likewise
  // Known once all ranks have joined:
  std::vector<NodeSeat> nodes;   // those that have ranks
  std::optional<uint32_t> here;  // which of them is this one; the root may have no ranks
  std::vector<uint32_t> node_of_rank;
  // Of the world that frames between GPUs go through; 0: they go through the hosts, and at the root
  // why they do.
  uint64_t gpu_generation = 0;
  std::string why_no_world;
  // Once connected. `tuning` is the same on all nodes for every operation: see engine_tuning.cc.
  int64_t measure_deadline_ns = 0;  // 0: the link to the next node is not being measured
  bool said_ready = false;
  std::unique_ptr<NodeChannel> channel;
  std::unique_ptr<runtime::NodeScope> plans;
  policy::Tuning tuning;
  std::optional<TuningChange> change;       // that is being agreed on
  std::deque<TuningChange> coming_changes;  // agreed on; their operations are still to start
  uint64_t last_epoch = 0;
  // The leader's: what it has learned, and of that what is about a communicator of this shape.
  std::shared_ptr<const policy::PlanModel> model;
  std::shared_ptr<const policy::PlanTable> table;
  // Of a rank's input, by OpKind, as operations counted it here.
  std::array<policy::DensityWatch, policy::kDensityCount> seen_densities{};
};

struct CommEntry {
  explicit CommEntry(Communicator communicator) : comm(std::move(communicator)) {}
  Communicator comm;
  UniqueIdBytes unique_id{};
  Counters counters;
  std::shared_ptr<const std::vector<std::string>> rank_names;  // once it is ready
  std::string running_algorithm;
  std::string running_way;                   // of sending, where that is by trial; else empty
  std::string running_chooser;               // who chose that; empty: there was no choice
  std::optional<policy::Settings> settings;  // as they were at settings_version
  uint64_t settings_version = 0;
  std::shared_ptr<const SendsInfo> last_sends;  // of the last operation that sent frames
  std::map<OpKind, std::string> sends_told;     // outline of what the last event said of it
  int64_t sends_looked_ns = 0;                  // when that was last compared
  // Of its ranks' relays (proto/shm/relay.h), once one has asked for them: the memory, and what of
  // it is mapped here.
  UniqueFd relay_memory;
  MappingRef relay_control;
  std::shared_ptr<RunningOp> running;
  FlightLog flight;
  int64_t flight_kept_ns = 0;  // when its record was last kept; 0: never
  bool pumping = false;
  std::optional<NodeGroup> group;  // empty: one node, or not known to be more
  // Whether its operations run over several nodes. (All ranks may be on one that is not the
  // root's.)
  bool across() const { return group && group->nodes.size() > 1; }
  // Those that wait, and the one that runs. Not one that has ended and whose end is still on its
  // way to the core thread: its ranks know, and may have called the next.
  uint32_t outstanding_ops() const {
    // acquire: who has seen its completion may submit, and we hear of that before Finish().
    const bool runs = running && !running->ended.load(std::memory_order_acquire);
    return comm.queued_ops() + (runs ? 1 : 0);
  }
};

struct Job {
  uid_t uid = 0;
  uint32_t sessions = 0, communicators = 0;
  uint64_t buffer_bytes = 0;  // registered, of all its sessions
  JobShare share;
  // The weight, as the links of its communicators see it.
  std::shared_ptr<transport::LinkShare> link_share = std::make_shared<transport::LinkShare>();
  Counters counters;
  std::shared_ptr<ChannelTime> channel_time = std::make_shared<ChannelTime>(0);
};

struct Registry {
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions;
  std::unordered_map<uint64_t, std::unique_ptr<CommEntry>> comms;
  std::map<CommKey, uint64_t> comm_of_key;  // those with a group
  std::map<NodeId, NodeInfo> nodes_up;
  std::map<std::string, Job> jobs;
  uint64_t next_session_id = 1, next_comm_id = 1, next_buffer_id = 1, next_memory_id = 1;
  uint64_t next_operation = 1;  // of all communicators
  uint32_t running_ops = 0;
  Counters counters;
  metrics::BufferTally buffers;  // of all sessions
  metrics::Telemetry telemetry;

  Session* FindSession(uint64_t id) const {
    const auto found = sessions.find(id);
    return found == sessions.end() ? nullptr : found->second.get();
  }
  CommEntry* FindComm(uint64_t id) const {
    const auto found = comms.find(id);
    return found == comms.end() ? nullptr : found->second.get();
  }
  CommEntry* FindComm(const CommKey& key) const {
    const auto found = comm_of_key.find(key);
    return found == comm_of_key.end() ? nullptr : FindComm(found->second);
  }
  // Forgets a job that nothing belongs to any more.
  void ForgetIfEmpty(const std::string& job_id) {
    const auto found = jobs.find(job_id);
    if (found == jobs.end()) return;
    if (found->second.sessions == 0 && found->second.communicators == 0) jobs.erase(found);
  }
};

}  // namespace spccl::daemon
