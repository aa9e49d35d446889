#include "daemon/engine.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kCheckEveryNs = 20'000'000;
constexpr int64_t kBusyTurnNs = 50'000'000, kIdleTurnNs = 500'000'000, kNanosPerMilli = 1'000'000;
// So often the core thread turns within the limit, where that is little, or an idle one would seem
// stuck.
constexpr int64_t kTurnsPerStallLimit = 4;

// Connections over the limit on sessions that are still accepted, so that they can be told why.
constexpr uint64_t kRefusable = 64;

constexpr size_t kScratchAlign = 64;

}  // namespace

Engine::Engine(CoreOptions options, CoreHooks hooks, EventLoop* loop, Nodes* nodes,
               uint64_t boot_id)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      loop_(loop),
      nodes_(nodes),
      boot_id_(boot_id),
      began_ns_(MonotonicNanos()),
      unique_ids_(boot_id, nodes == nullptr ? "" : nodes->self().address),
      scratch_memory_(new std::byte[runtime::kScratchBytes + kScratchAlign]) {
  if (hooks_.gpus != nullptr && hooks_.gpus->count() > 0) {
    closer_ = std::make_unique<GpuCloser>(*hooks_.gpus);
    imports_ = std::make_unique<GpuImports>(
        hooks_.gpus, closer_.get(), [this] { loop_->Post([this] { imports_->Deliver(); }); });
  }
  void* aligned = scratch_memory_.get();
  size_t space = runtime::kScratchBytes + kScratchAlign;
  aligned = std::align(kScratchAlign, runtime::kScratchBytes, aligned, space);
  scratch_ = runtime::Scratch(static_cast<std::byte*>(aligned), runtime::kScratchBytes);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(CoreOptions options, CoreHooks hooks,
                                                       EventLoop* loop, Nodes* nodes) {
  uint64_t boot_id;
  if (nodes != nullptr) {
    boot_id = nodes->self().boot_id;
  } else if (::getrandom(&boot_id, sizeof boot_id, 0) != sizeof boot_id) {
    return ErrnoStatus(errno, "getrandom");
  }
  auto engine = std::unique_ptr<Engine>(
      new Engine(std::move(options), std::move(hooks), loop, nodes, boot_id));
  const FlightOptions& flight = engine->options_.flight;
  SPCCL_ASSIGN_OR_RETURN(engine->scheduler_,
                         Scheduler::Create({.channels = engine->options_.channels,
                                            .pin = engine->options_.pin,
                                            .spans = flight.spans}));
  if (flight.spans > 0) engine->spans_ = std::make_unique<runtime::SpanRing>(flight.spans);
  if (!flight.folder.empty() && flight.files > 0) {
    SPCCL_ASSIGN_OR_RETURN(
        engine->flight_files_,
        FlightFiles::Open({.folder = flight.folder, .files = flight.files, .bytes = flight.bytes}));
  }
  engine->keeper_ = std::make_unique<FlightKeeper>();
  SPCCL_RETURN_IF_ERROR(engine->Listen());
  engine->ListenToNodes();
  return engine;
}

Engine::~Engine() {
  SPCCL_CHECK(quiet());
  CloseAll();
  if (nodes_ != nullptr) nodes_->Stop();
}

void Engine::CloseAll() {
  StopListening();
  while (!registry_.sessions.empty()) {
    CloseSession(registry_.sessions.begin()->first, "spccld has stopped", LogLevel::kDebug);
  }
  keeper_.reset();  // while it may tell the nodes something; what it has to write is written then
}

absl::Status Engine::Listen() {
  // Open to all users: who is calling comes from the kernel.
  SPCCL_ASSIGN_OR_RETURN(listener_,
                         shm::ListenSession(SessionSocketPath(options_.runtime_dir), 0666));
  listener_file_ = shm::SocketFile(SessionSocketPath(options_.runtime_dir));
  SPCCL_ASSIGN_OR_RETURN(listener_token_,
                         loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnConnect(); }));
  return absl::OkStatus();
}

void Engine::StopListening() {
  if (!listener_.valid()) return;
  loop_->Unwatch(listener_.get(), listener_token_);
  listener_file_.Remove();
  ::shutdown(listener_.get(), SHUT_RDWR);
  // Those who wait there may have sent descriptors already.
  fd_closer_.Close(::geteuid(), std::move(listener_));
}

void Engine::OnConnect() {
  // To close them here could hold up everybody, to hold more could leave those who are connected
  // without descriptors: others wait.
  if (fd_closer_.IsFull()) {
    return LetConnectionsWait("users have passed too many descriptors that cannot be closed");
  }
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    connections_wait_ = false;
    Admit(std::move(socket));
    return;
  }
  const int error = errno;
  if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
  LetConnectionsWait(std::strerror(error));
}

// The connection stays in the queue: listen again at the next check, rather than spin.
void Engine::LetConnectionsWait(const char* reason) {
  // Said once until one gets in.
  if (!std::exchange(connections_wait_, true)) {
    Log(LogLevel::kError, "session", "cannot accept: connections wait", {{"error", reason}});
  }
  loop_->Unwatch(listener_.get(), listener_token_);
  listener_token_ = 0;
}

// Others find room, however many one user has; whoever runs the daemon may have them all.
uint64_t Engine::MostOf(uint64_t limit, uid_t uid) {
  return uid == 0 || uid == ::geteuid() ? limit : limit - limit / 4;
}

Engine::SessionCounts Engine::CountSessions(uid_t uid) const {
  SessionCounts counts;
  for (const auto& [id, session] : registry_.sessions) {
    const bool refused = !session->refusal.ok();
    ++(refused ? counts.refused : counts.all);
    if (session->peer.uid == uid) ++(refused ? counts.own_refused : counts.own);
  }
  return counts;
}

void Engine::Admit(UniqueFd socket) {
  absl::StatusOr<Peer> peer = IdentifyPeer(socket.get());
  if (!peer.ok()) {
    const bool lacks = absl::IsResourceExhausted(peer.status());
    Log(lacks ? LogLevel::kWarning : LogLevel::kInfo, "session",
        lacks ? "out of file descriptors (RLIMIT_NOFILE): a client is turned away"
              : "a client left while it connected",
        {{"reason", std::string(peer.status().message())}});
    const uid_t user = UserOf(socket.get());
    return fd_closer_.CloseSocket(user, std::move(socket));
  }
  const uint64_t limit = options_.limits.sessions;
  const uint64_t own_limit = MostOf(limit, peer->uid);
  const SessionCounts now = CountSessions(peer->uid);
  if (now.refused >= kRefusable || now.own_refused >= MostOf(kRefusable, peer->uid) ||
      fd_closer_.IsFullOf(peer->uid)) {
    return fd_closer_.CloseSocket(peer->uid, std::move(socket));
  }
  auto session = std::make_unique<Session>();
  session->id = registry_.next_session_id++;
  session->socket = std::move(socket);
  session->peer = *std::move(peer);
  if (std::string job = hooks_.registered_job(session->peer); !job.empty()) {
    session->peer.job_id = std::move(job);
  }
  session->hello_deadline_ns = MonotonicNanos() + options_.hello_timeout_ns;
  if (now.all >= limit) {
    session->refusal = absl::ResourceExhaustedError(
        absl::StrCat("spccld has ", limit, " sessions, its limit (limits.sessions)"));
  } else if (now.own >= own_limit) {
    session->refusal = absl::ResourceExhaustedError(
        absl::StrCat("uid ", session->peer.uid, " has ", now.own,
                     " sessions, all that one user may have of the ", limit, " (limits.sessions)"));
  } else if (draining_ || stopping_) {
    session->refusal = absl::UnavailableError("spccld is draining: it takes no new sessions");
  }
  if (const absl::Status status = WatchSession(*session); !status.ok()) {
    Log(LogLevel::kError, "session", "a client is turned away",
        {{"reason", std::string(status.message())}});
    return fd_closer_.CloseSocket(session->peer.uid, std::move(session->socket));
  }
  ++JobOf(session->peer.job_id, session->peer.uid).sessions;
  registry_.sessions.emplace(session->id, std::move(session));
}

absl::Status Engine::WatchSession(Session& session) {
  const uint64_t id = session.id;
  SPCCL_ASSIGN_OR_RETURN(session.socket_token,
                         loop_->Watch(session.socket.get(), kSessionEvents,
                                      [this, id](uint32_t events) { OnSocket(id, events); }));
  if (!session.peer.pidfd.valid()) return absl::OkStatus();
  auto token =
      loop_->Watch(session.peer.pidfd.get(), EPOLLIN, [this, id](uint32_t) { OnPeerGone(id); });
  if (!token.ok()) {
    loop_->Unwatch(session.socket.get(), session.socket_token);
    return token.status();
  }
  session.pidfd_token = *token;
  return absl::OkStatus();
}

int Engine::Tick() {
  const int64_t now_ns = MonotonicNanos();
  if (now_ns >= next_check_ns_) {
    next_check_ns_ = now_ns + kCheckEveryNs;
    CheckDeadlines(now_ns);
  }
  const bool idle = registry_.sessions.empty() && listener_token_ != 0;
  const int64_t turn_ns = std::clamp(options_.stall_limit_ns / kTurnsPerStallLimit, kNanosPerMilli,
                                     idle ? kIdleTurnNs : kBusyTurnNs);
  return static_cast<int>(turn_ns / kNanosPerMilli);
}

void Engine::CheckDeadlines(int64_t now_ns) {
  if (listener_.valid() && listener_token_ == 0) {
    auto token = loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnConnect(); });
    if (token.ok()) listener_token_ = *token;
  }
  std::vector<uint64_t> late;
  for (const auto& [id, session] : registry_.sessions) {
    if (session->hello_deadline_ns != 0 && now_ns >= session->hello_deadline_ns) late.push_back(id);
  }
  for (const uint64_t id : late) {
    CloseSession(id, "waiting for its first request: the deadline has passed", LogLevel::kWarning);
  }
  std::vector<std::pair<uint64_t, CommFailure>> failures;
  for (const auto& [id, entry] : registry_.comms) {
    if (auto failure = entry->comm.Check(now_ns, options_.op_timeout_ns)) {
      NameUnready(*entry, &*failure);
      NameLate(*entry, &*failure);
      failures.emplace_back(id, *std::move(failure));
    }
  }
  for (const auto& [id, failure] : failures) FailComm(id, failure);
  TellFailedGpus();
  EndMeasures([now_ns](const NodeGroup& group) { return now_ns >= group.measure_deadline_ns; });
}

void Engine::OnPeerGone(uint64_t session_id) {
  CloseSession(session_id, "has ended", LogLevel::kInfo);
}

void Engine::CloseSession(uint64_t session_id, const std::string& reason, LogLevel level) {
  const auto found = registry_.sessions.find(session_id);
  if (found == registry_.sessions.end()) return;
  const std::unique_ptr<Session> session = std::move(found->second);
  registry_.sessions.erase(found);
  const Peer& peer = session->peer;
  Log(level, "session", "session closed",
      {{"session", absl::StrCat(session_id)},
       {"pid", absl::StrCat(peer.pid)},
       {"uid", absl::StrCat(peer.uid)},
       {"job", peer.job_id},
       {"reason", reason}});
  loop_->Unwatch(session->socket.get(), session->socket_token);
  loop_->Unwatch(peer.pidfd.get(), session->pidfd_token);
  loop_->Unwatch(session->doorbell.get(), session->doorbell_token);
  if (session->port) {
    session->port->Close();
    Record("session-closed", peer.job_id, 0, peer.uid,
           absl::StrCat("session ", session_id, " (pid ", peer.pid, "): ", reason));
  }
  if (level == LogLevel::kWarning) ++registry_.telemetry.broken_sessions;
  for (const auto& [id, buffer] : session->buffers) {
    registry_.buffers.Remove(buffer.kind(), buffer.size_bytes);
  }
  for (const auto& [handle, membership] : session->memberships) {
    LeaveComm(membership.comm_id, membership.rank, reason);
  }
  Job& job = registry_.jobs[peer.job_id];
  job.buffer_bytes -= session->buffer_bytes;
  --job.sessions;
  ForgetIfIdle(peer.job_id);
  fd_closer_.CloseSocket(peer.uid, std::move(session->socket));
}

void Engine::Doom(uint64_t session_id, std::string reason) {
  loop_->Post([this, session_id, reason = std::move(reason)] {
    CloseSession(session_id, reason, LogLevel::kWarning);
  });
}

void Engine::Record(std::string kind, const std::string& job_id, uint64_t comm_id, uid_t uid,
                    std::string message, std::shared_ptr<const SendsInfo> sends) {
  Event event{};
  event.kind = std::move(kind);
  event.job_id = job_id;
  event.comm_id = comm_id;
  event.uid = uid;
  event.message = std::move(message);
  event.sends = std::move(sends);
  events_.Record(std::move(event));
}

void Engine::SayGoodbye(Session& session, shm::Result result, std::string_view reason) {
  if (!session.port) return;
  shm::Reply goodbye{};
  goodbye.magic = shm::kSessionMagic;
  goodbye.type = shm::ReplyType::kGoodbye;
  goodbye.result = static_cast<uint32_t>(result);
  shm::SetText(goodbye.message, reason);
  Send(session, goodbye);
}

void Engine::BeginStop() {
  if (stopping_) return;
  stopping_ = true;
  draining_ = true;
  StopListening();
  Record("stopping", "", 0, 0, kStopping);
  for (const auto& [id, session] : registry_.sessions) {
    SayGoodbye(*session, shm::Result::kSuccess, kStopping);
  }
  std::vector<uint64_t> idle;
  for (const auto& [id, entry] : registry_.comms) {
    if (!entry->comm.running()) idle.push_back(id);
  }
  for (const uint64_t id : idle) Pump(id);
}

void Engine::StopNow() {
  BeginStop();
  std::vector<uint64_t> running;
  for (const auto& [id, entry] : registry_.comms) running.push_back(id);
  for (const uint64_t id : running) {
    FailComm(id, {.status = absl::UnavailableError(kStopping), .expected = true});
  }
}

void Engine::SetDraining(bool draining) {
  if (draining_ == draining) return;
  draining_ = draining || stopping_;
  Record(draining_ ? "draining" : "undrained", "", 0, 0,
         draining_ ? "no new sessions and communicators" : "new sessions and communicators again");
}

void Engine::Reconfigure(const CoreOptions& next) {
  options_.limits = next.limits;
  options_.op_timeout_ns = next.op_timeout_ns;
  options_.init_timeout_ns = next.init_timeout_ns;
}

absl::Status Engine::AbortComm(uint64_t comm_id, const std::string& reason) {
  const CommEntry* entry = registry_.FindComm(comm_id);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no communicator ", comm_id));
  }
  FailComm(comm_id, {.status = absl::AbortedError(
                         absl::StrCat("the communicator was aborted by an operator: ", reason)),
                     .culprit_rank = -1});
  return absl::OkStatus();
}

EndedJob Engine::EndJob(const std::string& job_id) {
  const std::string reason =
      absl::StrCat("job ", job_id, " was ended by an operator or the batch system");
  EndedJob ended;
  std::vector<uint64_t> comms, sessions;
  for (const auto& [id, entry] : registry_.comms) {
    if (entry->comm.job_id() == job_id) comms.push_back(id);
  }
  for (const auto& [id, session] : registry_.sessions) {
    if (session->peer.job_id != job_id) continue;
    sessions.push_back(id);
    ended.buffer_bytes += session->buffer_bytes;
  }
  // Without a word its ranks would take this daemon to have died; before the notices of their
  // communicators, which may be more than a socket holds.
  for (const uint64_t id : sessions) {
    SayGoodbye(*registry_.FindSession(id), shm::Result::kRemoteError, reason);
  }
  for (const uint64_t id : comms) {
    FailComm(id, {.status = absl::AbortedError(reason), .expected = true});
  }
  for (const uint64_t id : sessions) {
    // To ranks of other jobs, where they share a communicator, it is that rank's end.
    CloseSession(id, absl::StrCat("has lost its session: ", reason), LogLevel::kInfo);
  }
  registry_.ForgetIfEmpty(job_id);  // also where nothing of it was left to close
  ended.communicators = static_cast<uint32_t>(comms.size());
  ended.sessions = static_cast<uint32_t>(sessions.size());
  return ended;
}

}  // namespace spccl::daemon
