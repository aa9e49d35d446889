// What the control services may ask of the daemon's core. Every method is thread-safe and returns
// within its deadline; the core answers from its own thread. Rights are checked by the services.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/phase.h"
#include "collective/policy/decision.h"
#include "collective/policy/settings.h"
#include "collective/runtime/send_step.h"
#include "daemon/gpu_facts.h"
#include "daemon/job_share.h"
#include "daemon/progress.h"
#include "kernels/format.h"

namespace spccl::v1 {
class FlightRecord;
}  // namespace spccl::v1

namespace spccl::daemon {

// Sums since the start of whatever they describe.
struct Counters {
  uint64_t ops = 0, failed_ops = 0;
  uint64_t dense_bytes = 0, wire_bytes = 0;  // of sends: had they been dense, and as they were
  uint64_t payload_bytes = 0;                // of the ranks' send buffers
  uint64_t busy_ns = 0;                      // from the last rank's arrival to the completion
  std::array<uint64_t, kFormatCount> sends_by_format{};
  // Why each send had its format, by phase.
  std::array<std::array<uint64_t, policy::kReasonCount>, kPhaseCount> decisions{};
  uint64_t last_input_nnz = 0, last_input_elements = 0;  // of the last operation that counted
  uint64_t last_result_nnz = 0, last_result_elements = 0;
  // What threads spent, all together, and participants waited: see runtime::OpStats.
  uint64_t encode_ns = 0, send_ns = 0, reduce_ns = 0;
  uint64_t receive_wait_ns = 0, room_wait_ns = 0;
};

// What was decided at each send of one operation's plan.
struct SendsInfo {
  std::string operation;  // "all_reduce"
  std::string algorithm;  // "recursive-doubling"
  std::string way;        // of sending: "model", "pici first"; empty: not by trial
  std::vector<runtime::SendStepStats> steps;
};

struct RankInfo {
  uint32_t rank;
  uint64_t session_id;
  pid_t pid;          // on its node
  std::string phase;  // "idle", "queued", "waiting for rank 2", "running", "failed"
};

// A node of a communicator over several.
struct CommNodeInfo {
  std::string name;
  std::string address;  // of its daemon; empty: this node
  std::string route;    // how frames reach it: "tcp/eth0"
  std::vector<uint32_t> ranks;
  // Of the link from this node to it; 0: not measured.
  double round_trip_seconds = 0;
  double link_bytes_per_second = 0;
};

struct CommInfo {
  uint64_t id;  // unique in this daemon's life, never reused
  std::string job_id;
  uid_t uid;
  uint32_t ranks;
  std::string state;              // "forming", "connecting", "ready", "failed"
  std::string error;              // why it failed
  policy::Settings settings;      // as resolved now
  policy::Overrides wishes = {};  // of its ranks' environment
  std::string running_algorithm;  // of the last operation: "local", "ring", ...
  std::string running_chooser;    // of that, between nodes: "model", "cost model", "fixed"
  uint32_t queued_ops = 0;
  Counters counters;
  std::shared_ptr<const SendsInfo> last_sends;  // of the last operation that sent frames, or null
  std::vector<RankInfo> members;
  std::vector<CommNodeInfo> nodes;  // empty: all ranks are on this node
};

struct BufferInfo {
  uint64_t id;
  uint64_t session_id;
  pid_t pid;
  uid_t uid;
  std::string job_id;
  std::string kind;  // as metrics::BufferKind: "mapped", "attach", "cuda-ipc", "cuda-fd", "staged"
  uint64_t size_bytes;
  uint64_t uses;
  std::string gpu = {};  // of the last three kinds: "GPU-" and its UUID
};

// What was left of a job when it ended.
struct EndedJob {
  uint32_t sessions = 0, communicators = 0;
  uint64_t buffer_bytes = 0;
};

struct JobInfo {
  std::string id;
  uid_t uid;
  uint32_t sessions;
  uint32_t communicators;
  uint32_t buffers;
  uint64_t buffer_bytes;
  Counters counters;
  bool registered = false;  // by the batch system's prolog
  JobShare share = {};      // as resolved now
  uint64_t operations = 0;  // called by some rank here and not ended
  int64_t channel_ns = 0;   // processor time of channel threads
};

struct CoreInfo {
  uint64_t boot_id;
  pid_t pid;
  int64_t uptime_ns;
  std::string version;
  bool draining;
  uint32_t channels;
  uint32_t sessions;
  uint64_t mapped_bytes;
  int64_t last_progress_age_ns;  // the one signal of progress: health follows it
  bool healthy;
  std::string health_detail;
  std::string codec_target;
  Counters counters;
  GpuFacts gpus = {};
};

struct Snapshot {
  CoreInfo core;
  std::vector<JobInfo> jobs;
  std::vector<CommInfo> comms;
  std::vector<BufferInfo> buffers;
};

struct Event {
  uint64_t sequence;  // rises by one; a gap means that the reader was too slow
  int64_t unix_nanos;
  std::string kind;  // "session-open", "session-closed", "comm-ready", "comm-failed", ...
  std::string job_id;
  uint64_t comm_id = 0;
  uid_t uid = 0;
  std::string message;
  std::shared_ptr<const SendsInfo> sends;  // of "sends" only
};

// Whoever keeps an event shares the one copy.
using EventPtr = std::shared_ptr<const Event>;
using OnEvent = std::function<void(const EventPtr&)>;

// An owner of callbacks: dropping it ends the subscription; no callback runs after that.
class Subscription {
 public:
  virtual ~Subscription() = default;
};

class Control {
 public:
  virtual ~Control() = default;
  // A communicator's flight record, with `spans` what every thread did, too; of one that has failed
  // what was kept then, if anything was. Waits half a second at most for what its other nodes say.
  // NotFound: there is neither.
  virtual absl::StatusOr<v1::FlightRecord> GetFlight(uint64_t comm_id, bool spans) = 0;
  virtual absl::StatusOr<Snapshot> GetSnapshot() = 0;
  // The one signal of health. Never waits, whatever the core does.
  virtual Progress GetProgress() = 0;
  virtual absl::Status AbortComm(uint64_t comm_id, const std::string& reason) = 0;
  // Closes what is left of a job: fails its communicators, ends its sessions, gives back its
  // memory.
  virtual absl::StatusOr<EndedJob> EndJob(const std::string& job_id) = 0;
  // Jobs' shares and quotas may have changed: puts them in force. If the core thread does not
  // answer in time, as soon as it can.
  virtual void RefreshShares() = 0;
  // Draining refuses new sessions and communicators; what runs goes on.
  virtual absl::Status SetDraining(bool draining) = 0;
  // Keeps the event and tells the subscribers; the core numbers and stamps it, soon.
  virtual void RecordEvent(Event event) = 0;
  // `on_event` is called on the core's thread: it must only hand over. With `from_sequence` > 0 the
  // events that are still kept from there on are delivered first.
  virtual std::unique_ptr<Subscription> Subscribe(uint64_t from_sequence, OnEvent on_event) = 0;
};

}  // namespace spccl::daemon
