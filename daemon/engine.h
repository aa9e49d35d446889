// The daemon's core, as one thread sees it: accepts sessions, answers requests, takes submissions
// in, starts operations and ends them. All methods belong to the core thread, but OnTaskDone().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "collective/policy/settings.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"
#include "daemon/core_hooks.h"
#include "daemon/core_options.h"
#include "daemon/event_log.h"
#include "daemon/event_loop.h"
#include "daemon/fd_closer.h"
#include "daemon/flight_answers.h"
#include "daemon/flight_files.h"
#include "daemon/flight_keeper.h"
#include "daemon/flight_record.h"
#include "daemon/metrics/sample.h"
#include "daemon/nodes.h"
#include "daemon/registry.h"
#include "daemon/scheduler.h"
#include "daemon/submission_check.h"
#include "proto/shm/result.h"
#include "proto/shm/session.h"
#include "proto/shm/socket.h"

namespace spccl::v1 {
class FlightAnswer;
class FlightAsk;
class Form;
class Go;
class Join;
class Lead;
class Leave;
class Ready;
class TuningCommit;
class TuningPrepare;
class TuningPrepared;
}  // namespace spccl::v1

namespace spccl::daemon {

// An operation: of which communicator, and which of its.
struct EndedOp {
  uint64_t comm_id, sequence;
};

// What a session's socket is watched for, but for room while replies wait.
inline constexpr uint32_t kSessionEvents = EPOLLIN | EPOLLRDHUP;
inline constexpr char kStopping[] = "spccld is stopping";

class Engine {
 public:
  // Borrows the loop, and the other nodes' daemons (nullptr: this one takes no part in
  // communicators between nodes). Listens on runtime_dir/session.sock.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(CoreOptions options, CoreHooks hooks,
                                                        EventLoop* loop, Nodes* nodes = nullptr);
  // Nothing may run any more: quiet() is true.
  ~Engine();

  // On the thread that calls everything else, before anything else.
  void EnterThread() { runtime::SpanRing::SetOfThisThread(spans_.get()); }

  // Looks after deadlines; call it every turn of the loop. Returns how long the next turn may wait.
  int Tick();

  // Takes nothing new, tells the clients, fails what does not run yet; what runs goes on.
  void BeginStop();
  // Also cancels what runs.
  void StopNow();
  // Once quiet, and last: closes all sessions, and writes down what is to be kept.
  void CloseAll();
  bool stopping() const { return stopping_; }
  bool quiet() const { return registry_.running_ops == 0; }

  void SetDraining(bool draining);
  // As Core's.
  void Reconfigure(const CoreOptions& next);
  void RefreshShares();
  absl::Status AbortComm(uint64_t comm_id, const std::string& reason);
  EndedJob EndJob(const std::string& job_id);
  Snapshot MakeSnapshot() const;
  // Operations whose end ranks were told, and that are not counted yet.
  std::vector<EndedOp> Uncounted() const;
  bool IsCounted(const EndedOp& op) const;
  // Work in proportion to sessions, communicators, jobs and nodes; takes no lock of a channel
  // thread.
  metrics::CoreSample MakeCoreSample() const;
  EventLog& events() { return events_; }

  // A communicator's record as far as only this thread knows it; asks the daemons of its other
  // nodes, whose answers come to `answers`. NotFound: there is no such communicator.
  absl::StatusOr<FlightDraft> DraftFlight(uint64_t comm_id, std::shared_ptr<FlightAnswers> answers);
  // Any thread.
  FlightSpans ReadSpans() const;
  absl::StatusOr<v1::FlightRecord> FindKeptFlight(uint64_t comm_id) const;

  uint64_t boot_id() const { return boot_id_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  const Reaper& reaper() const { return reaper_; }
  int64_t CoreHeartbeatNanos() const { return loop_->heartbeat_ns(); }

 private:
  Engine(CoreOptions options, CoreHooks hooks, EventLoop* loop, Nodes* nodes, uint64_t boot_id);

  // engine.cc: sessions come and go.
  absl::Status Listen();
  void StopListening();
  void OnConnect();
  void LetConnectionsWait(const char* reason);
  void Admit(UniqueFd socket);
  absl::Status WatchSession(Session& session);
  void CheckDeadlines(int64_t now_ns);
  void OnPeerGone(uint64_t session_id);
  // Tells a client why its session is about to end.
  void SayGoodbye(Session& session, shm::Result result, std::string_view reason);
  void CloseSession(uint64_t session_id, const std::string& reason, LogLevel level);
  // Closes it in the next turn of the loop, for callers that are in the middle of something.
  void Doom(uint64_t session_id, std::string reason);
  void Record(std::string kind, const std::string& job_id, uint64_t comm_id, uid_t uid,
              std::string message, std::shared_ptr<const SendsInfo> sends = nullptr);

  // engine_requests.cc: what clients ask by the socket.
  void OnSocket(uint64_t session_id, uint32_t events);
  void OnReadable(uint64_t session_id);
  void HandlePacket(Session& session, std::span<const std::byte> bytes, shm::Packet packet);
  void Answer(Session& session, const shm::Request& request, PassedFds fds);
  absl::Status Hello(Session& session, const shm::Request& request);
  absl::StatusOr<MappingRef> OpenSegment(Session& session, UniqueFd* segment_fd);
  absl::StatusOr<uint64_t> RegisterMemfd(Session& session, const shm::Request& request, int fd);
  absl::StatusOr<uint64_t> RegisterAddress(Session& session, const shm::Request& request);
  absl::StatusOr<uint64_t> AddBuffer(Session& session, Buffer buffer);
  absl::Status CheckBufferLimits(const Session& session, uint64_t more_bytes);
  // Of `limit`, how many one user may have.
  static uint64_t MostOf(uint64_t limit, uid_t uid);
  // Of all users and of one; those that are only held until they can be told why not, apart.
  struct SessionCounts {
    uint64_t all = 0, own = 0, refused = 0, own_refused = 0;
  };
  SessionCounts CountSessions(uid_t uid) const;
  absl::StatusOr<MappingRef> MapOnce(Session& session, int fd, uint64_t least_bytes,
                                     uint64_t* memory_id);
  absl::Status Deregister(Session& session, uint64_t buffer_id);
  absl::Status TakeMemory(Session& session, std::span<UniqueFd> fds);
  void HandOutRelays(Session& session, const shm::Request& request);
  absl::Status OpenRelays(CommEntry& entry);
  // engine_gpu.cc
  void RegisterCuda(Session& session, const shm::Request& request, PassedFds fds);
  absl::StatusOr<runtime::Gpu*> FindGpu(const cuda::Uuid& uuid);
  static const Buffer* FindSame(const Session& session, const Buffer& buffer, int gpu);
  void OnOpened(uint64_t session_id, uint64_t request_id, Buffer buffer,
                const absl::StatusOr<GpuMemoryRef>& memory);
  void HandOutOrder(Session& session, const shm::Request& request);
  absl::Status MakeOrder(Session& session, uint64_t request_id);
  void OnOrder(uint64_t session_id, uint64_t request_id, const absl::StatusOr<OrderMapRef>& order);
  void SendOrder(Session& session, uint64_t request_id);
  // Null: none that can be.
  static std::shared_ptr<const runtime::GpuOrder> OrderOf(const Session& session,
                                                          const shm::Submission& slot);
  // An event for each GPU that has become of no use since the last time.
  void TellFailedGpus();
  // Says whose streams have not got to the operation that runs, where that is on GPUs.
  static void NameUnready(const CommEntry& entry, CommFailure* failure);
  // Says which ranks the others wait for, where they run the operation among themselves.
  static void NameLate(const CommEntry& entry, CommFailure* failure);
  // An error if some of the operation's buffers are GPUs' and others the host's.
  static absl::Status FindMixedMemory(const CommEntry& entry, const RunningOp& running);
  void Send(Session& session, const shm::Reply& reply, const std::vector<int>& fds = {});
  // What follows from `sent`, where replies `waited` before it: who waits for room, who is doomed.
  void SendOn(Session& session, bool waited, absl::Status sent);
  void Reply(Session& session, uint64_t request_id, const absl::Status& status, uint64_t value = 0);

  // engine_comms.cc: communicators form, end and fail.
  absl::Status JoinComm(Session& session, const shm::Request& request);
  // Who asks for a communicator: a session's process, or one of another node.
  struct Asker {
    std::string job_id;
    uid_t uid;
  };
  absl::StatusOr<CommEntry*> FindOrMakeComm(const Asker& asker, const UniqueIdBytes& unique_id,
                                            uint32_t ranks);
  absl::Status AdoptComm(const Asker& asker, CommEntry& entry);
  absl::StatusOr<CommEntry*> MakeComm(const Asker& asker, const UniqueIdBytes& unique_id,
                                      uint32_t ranks, std::string root);
  void AnnounceReady(CommEntry& entry);
  std::string GpuRouteOf(const CommEntry& entry) const;
  absl::Status SetCodec(Session& session, const shm::Request& request);
  absl::Status DestroyComm(Session& session, uint32_t handle, bool abort);
  void LeaveComm(uint64_t comm_id, uint32_t rank, const std::string& why);
  // `teller`: the node that it was heard from; all others of the communicator are told.
  void FailComm(uint64_t comm_id, const CommFailure& seen, NodeId teller = 0);
  CommFailure CauseOf(const CommFailure& seen) const;  // what this node's ranks are told
  void TellMembers(CommEntry& entry, bool was_forming);
  void EraseIfAbandoned(uint64_t comm_id);

  // engine_nodes.cc and engine_meeting.cc: communicators over several nodes.
  void ListenToNodes();
  void OnNodeUp(NodeId node, const NodeInfo& info);
  void OnNodeDown(NodeId node, const absl::Status& status);
  void OnNodeMessage(NodeId node, const v1::PeerMessage& message);
  absl::Status OnJoin(NodeId node, const v1::Join& join);
  absl::Status OnForm(NodeId node, const v1::Form& form);
  absl::Status OnReady(NodeId node, CommEntry& entry, const v1::Ready& ready);
  absl::Status OnGo(NodeId node, CommEntry& entry, const v1::Go& go);
  void OnLeave(NodeId node, CommEntry& entry, const v1::Leave& leave);
  // A rank of this node joins at another node's daemon.
  absl::StatusOr<CommEntry*> FindOrMakeRemoteComm(const Asker& asker,
                                                  const UniqueIdBytes& unique_id, uint32_t ranks,
                                                  const UniqueIdParts& parts);
  void SendJoin(const CommEntry& entry, const Session& session, const shm::Request& request);
  NodeGroup& GroupOf(CommEntry& entry, const CommKey& key);
  void BeginForm(CommEntry& entry);
  void BeginConnect(CommEntry& entry);
  void ContinueConnect(CommEntry& entry);
  absl::Status OpenChannel(CommEntry& entry);
  void ChooseGpuWorld(NodeGroup& group);
  static NodeId NextNode(const NodeGroup& group);
  void BeginMeasure(CommEntry& entry);
  void OnMeasured(NodeId node);
  void EndMeasures(const std::function<bool(const NodeGroup&)>& is_over);
  void SayReady(CommEntry& entry);
  void CheckAllReady(CommEntry& entry);
  void OpenComm(CommEntry& entry);
  void TellNodes(const CommEntry& entry, const v1::PeerMessage& message, NodeId except = 0);
  void TellFailure(const CommEntry& entry, const CommFailure& failure, NodeId except);
  void TellLeave(const CommEntry& entry, uint32_t rank, const std::string& how);
  absl::StatusOr<std::unique_ptr<runtime::Task>> MakeGroupTask(
      CommEntry& entry, const std::shared_ptr<RunningOp>& running,
      std::span<const runtime::RankBuffers> ranks, const policy::Settings& settings);
  void EndGroup(CommEntry& entry);

  // engine_shares.cc: what jobs get, and may take.
  // The job, made if nothing belongs to it yet.
  Job& JobOf(const std::string& job_id, uid_t uid);
  // Forgets a job that nothing belongs to any more; a registered one, that may be between two
  // steps, keeps its counters until it is ended.
  void ForgetIfIdle(const std::string& job_id);
  void Schedule(const CommEntry& entry, std::shared_ptr<runtime::Task> task);
  // ResourceExhausted: names the job, the quota, what it has and what it asks for; counted.
  absl::Status CheckQuota(metrics::Quota quota, const std::string& job_id, uint64_t limit,
                          uint64_t held, uint64_t more);
  absl::Status CheckBufferQuota(const std::string& job_id, uint64_t more_bytes);
  absl::Status CheckCommShare(const Asker& asker) const;
  absl::Status CheckCommQuota(const Asker& asker);
  absl::Status CheckOperationQuota(const CommEntry& entry, uint64_t sequence);
  // That some rank here has called, and that have not ended.
  uint64_t OperationsOf(const std::string& job_id) const;

  // engine_flight.cc: the flight recorder.
  void OpenFlight(CommEntry& entry);
  // Puts the operation that has just ended down.
  void LogFlight(CommEntry& entry, const runtime::OpResult& result);
  FlightDraft MakeDraft(const CommEntry& entry) const;
  // An operation has failed, and the communicator goes on.
  void KeepFlightOfFailed(CommEntry& entry, const absl::Status& status);
  // Keeps its record on disk, soon.
  void KeepFlight(CommEntry& entry, const absl::Status& reason);
  void OnFlightAsk(NodeId node, const v1::FlightAsk& ask);
  void OnFlightAnswer(NodeId node, const v1::FlightAnswer& answer);

  // engine_tuning.cc: all nodes plan alike.
  static void NoteDensity(NodeGroup& group, OpKind kind, const runtime::OpStats& stats);
  static bool LeadsTuning(const NodeGroup& group);
  // What the leader has learned of a communicator of this shape.
  void LookUpModel(NodeGroup& group);
  // Before an operation starts: begins a change if one is due.
  void ReviewTuning(CommEntry& entry);
  // Whether no operation may start, because a change is being agreed on.
  static bool HoldsForTuning(const CommEntry& entry);
  static const policy::Tuning& TuningOf(CommEntry& entry, uint64_t sequence);
  absl::Status OnTuningPrepare(NodeId node, CommEntry& entry, const v1::TuningPrepare& prepare);
  void OnTuningPrepared(NodeId node, CommEntry& entry, const v1::TuningPrepared& prepared);
  void OnTuningCommit(NodeId node, CommEntry& entry, const v1::TuningCommit& commit);
  void TellLead(CommEntry& entry, OpKind kind);
  void RecordLead(const CommEntry& entry, OpKind kind, const std::string& way);
  absl::Status OnLead(NodeId node, CommEntry& entry, const v1::Lead& lead);
  void CommitTuning(CommEntry& entry, uint64_t from_sequence);
  // Whether all ranks of another node have left: the first operation that none of them took part
  // in.
  static std::optional<uint64_t> LeftAt(const CommEntry& entry, uint32_t node);
  void CountAsPrepared(CommEntry& entry, NodeId node, uint64_t from_sequence);
  void CommitIfPrepared(CommEntry& entry);
  void TellCommit(const CommEntry& entry, uint64_t from_sequence);
  // A rank of another node (by its place) has left: that may have been the last to be waited for.
  void ReviewTuningAfterLeave(CommEntry& entry, uint32_t node);
  // This node's part ends: others shall not wait for its word.
  void TakeBackTuning(CommEntry& entry);

  // engine_submissions.cc: what ranks submit.
  void DrainSubmissions(uint64_t session_id);
  // Its running tasks may wait for this session's ranks.
  void NudgeTasks(uint64_t session_id);
  absl::Status TakeSubmission(Session& session, const shm::Submission& slot);
  SlotCheck CheckSlot(const Session& session, const shm::Submission& slot) const;
  void PlaceBuffers(Session& session, const shm::Submission& slot, const CommEntry& entry,
                    uint32_t rank, RankPart* part);
  void Complete(std::vector<Outcome> outcomes);

  // engine_ops.cc: operations.
  void Pump(uint64_t comm_id);
  void Start(CommEntry& entry, ReadyOperation ready);
  absl::StatusOr<std::unique_ptr<runtime::Task>> MakeTask(
      CommEntry& entry, const std::shared_ptr<RunningOp>& running,
      std::span<const runtime::RankBuffers> ranks);
  // What its next operation runs with. All its ranks have joined.
  const policy::Settings& SettingsOf(CommEntry& entry);
  void RunInline(CommEntry& entry, const std::shared_ptr<RunningOp>& running);
  // Any thread: writes the completions, then hands the bookkeeping to the core thread.
  void OnTaskDone(const std::shared_ptr<RunningOp>& running, const runtime::OpResult& result);
  void NoteSends(CommEntry& entry, OpKind kind, const runtime::OpStats& stats);
  void Finish(const std::shared_ptr<RunningOp>& running, const runtime::OpResult& result);
  void Cancel(CommEntry& entry, const CommFailure& failure);
  // Applies `add` to the counters of the communicator, of its job and of the whole.
  template <typename Add>
  void ForEachCounters(CommEntry& entry, Add add) {
    add(entry.counters);
    add(registry_.jobs[entry.comm.job_id()].counters);
    add(registry_.counters);
  }

  CoreOptions options_;
  const CoreHooks hooks_;
  EventLoop* const loop_;
  Nodes* const nodes_;  // nullptr: none
  const uint64_t boot_id_;
  const int64_t began_ns_;

  // Order of destruction: what holds mappings or passed descriptors goes before the reaper, what
  // holds GPU memory before the closer.
  Reaper reaper_;
  FdCloser fd_closer_{&reaper_};
  std::unique_ptr<GpuCloser> closer_;    // null: no GPU is used
  std::unique_ptr<GpuImports> imports_;  // likewise
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<runtime::SpanRing> spans_;  // of the core thread; null: none
  std::optional<FlightFiles> flight_files_;   // empty: none are kept
  std::unique_ptr<FlightKeeper> keeper_;      // uses the three before it
  uint64_t next_flight_ask_ = 1;
  std::map<uint64_t, std::weak_ptr<FlightAnswers>> flight_asks_;  // by FlightAsk.id
  UniqueIds unique_ids_;
  EventLog events_;
  Registry registry_;
  UniqueFd listener_;
  shm::SocketFile listener_file_;
  EventLoop::Token listener_token_ = 0;
  bool connections_wait_ = false;  // and that has been said
  bool draining_ = false, stopping_ = false;
  int64_t next_check_ns_ = 0;
  std::set<size_t> failed_gpus_;  // those that were told of
  std::unique_ptr<std::byte[]> scratch_memory_;
  runtime::Scratch scratch_;
};

}  // namespace spccl::daemon
