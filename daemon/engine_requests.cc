// What clients ask by the socket.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/kept_descriptors.h"
#include "daemon/request_parse.h"
#include "proto/shm/result.h"

namespace spccl::daemon {
namespace {

constexpr int kPacketsATurn = 16;
constexpr long kHugetlbfsMagic = 0x958458f6;
constexpr char kTooManyOdd[] =
    "its user has passed too many descriptors that cannot be closed: sockets that linger, say";

// The client's own name for itself, for logs: printable ASCII only.
std::string Printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return clean;
}

// Huge pages may be missing when they are touched, sealed or not: a fault we could not survive.
absl::Status RefuseHugePages(int fd) {
  struct statfs info;
  if (::fstatfs(fd, &info) != 0) return ErrnoStatus(errno, "fstatfs of a memfd");
  if (info.f_type != kHugetlbfsMagic) return absl::OkStatus();
  return absl::InvalidArgumentError("memfd is of hugetlbfs, which spccld does not map");
}

}  // namespace

void Engine::Send(Session& session, const shm::Reply& reply, const std::vector<int>& fds) {
  const bool waited = !session.outbox.empty();
  SendOn(session, waited,
         session.outbox.Send(session.socket.get(), reply, fds, session.memberships.size()));
}

void Engine::SendOn(Session& session, bool waited, absl::Status sent) {
  const bool waits = !session.outbox.empty();
  if (sent.ok() && waits != waited) {
    sent = loop_->Change(session.socket.get(), session.socket_token,
                         kSessionEvents | (waits ? EPOLLOUT : 0));
  }
  // A client that does not read must not hold up the daemon.
  if (!sent.ok()) Doom(session.id, std::string(sent.message()));
}

void Engine::OnSocket(uint64_t session_id, uint32_t events) {
  Session* const session = registry_.FindSession(session_id);
  if (session == nullptr) return;
  if ((events & EPOLLOUT) != 0 && !session->outbox.empty()) {
    SendOn(*session, /*waited=*/true, session->outbox.Flush(session->socket.get()));
  }
  if ((events & ~uint32_t{EPOLLOUT}) != 0) OnReadable(session_id);
}

void Engine::Reply(Session& session, uint64_t request_id, const absl::Status& status,
                   uint64_t value) {
  shm::Reply reply{};
  reply.magic = shm::kSessionMagic;
  reply.type = shm::ReplyType::kReply;
  reply.request_id = request_id;
  reply.result = static_cast<uint32_t>(shm::ResultOf(status));
  reply.value = value;
  shm::SetText(reply.message, std::string_view(status.message().data(), status.message().size()));
  Send(session, reply);
}

void Engine::OnReadable(uint64_t session_id) {
  for (int i = 0; i < kPacketsATurn; ++i) {
    Session* const session = registry_.FindSession(session_id);
    if (session == nullptr) return;
    if (fd_closer_.IsFullOf(session->peer.uid)) {
      CloseSession(session_id, kTooManyOdd, LogLevel::kWarning);
      return;
    }
    std::array<std::byte, sizeof(shm::Request) + 1> bytes;
    absl::StatusOr<shm::Packet> packet = [&] {
      const KeptDescriptors kept;
      return shm::ReceivePacket(session->socket.get(), bytes.data(), bytes.size());
    }();
    if (!packet.ok() && shm::IsWouldBlock(packet.status())) return;
    if (!packet.ok() || packet->bytes == 0) {
      // An empty packet looks like the end, but for what may be beside it.
      if (packet.ok()) PassedFds(std::move(packet->fds), session->peer.uid, &fd_closer_);
      const bool ended = HasEnded(session->peer);
      CloseSession(session_id, ended ? "has ended" : "has closed its session", LogLevel::kInfo);
      return;
    }
    const std::span<const std::byte> request(bytes.data(), packet->bytes);
    HandlePacket(*session, request, *std::move(packet));
  }
}

void Engine::HandlePacket(Session& session, std::span<const std::byte> bytes, shm::Packet packet) {
  PassedFds fds(std::move(packet.fds), session.peer.uid, &fd_closer_);
  absl::StatusOr<shm::Request> request =
      packet.truncated && !packet.lost_fds
          ? absl::InvalidArgumentError("request: too long, or too many descriptors beside it")
          : ParseRequest(bytes, packet.lost_fds ? std::nullopt : std::optional(fds.size()));
  if (request.ok() && !session.port && request->type != shm::RequestType::kHello) {
    request = absl::FailedPreconditionError("the first request must be Hello");
  }
  if (!request.ok()) {
    // request_id 0: what the packet says of itself is not to be believed.
    Reply(session, 0, request.status());
    CloseSession(session.id, absl::StrCat("broke the protocol: ", request.status().message()),
                 LogLevel::kWarning);
    return;
  }
  if (packet.lost_fds) {
    return Reply(session, request->request_id,
                 absl::ResourceExhaustedError(
                     "the daemon is out of descriptors (RLIMIT_NOFILE): what came with the request "
                     "was lost"));
  }
  Answer(session, *request, std::move(fds));
}

void Engine::Answer(Session& session, const shm::Request& request, PassedFds fds) {
  const uint64_t id = request.request_id;
  const auto reply_value = [&](const absl::StatusOr<uint64_t>& value) {
    Reply(session, id, value.status(), value.ok() ? *value : 0);
  };
  switch (request.type) {
    case shm::RequestType::kHello:
      if (const absl::Status status = Hello(session, request); !status.ok()) {
        Reply(session, id, status);
        CloseSession(session.id, absl::StrCat("was refused: ", status.message()), LogLevel::kInfo);
      }
      return;
    case shm::RequestType::kUniqueId: {
      const absl::StatusOr<UniqueIdBytes> unique_id = unique_ids_.Issue(session.peer.uid);
      if (!unique_id.ok()) return Reply(session, id, unique_id.status());
      shm::Reply reply{};
      reply.magic = shm::kSessionMagic;
      reply.type = shm::ReplyType::kReply;
      reply.request_id = id;
      std::memcpy(reply.payload, unique_id->data(), unique_id->size());
      return Send(session, reply);
    }
    case shm::RequestType::kCommInit:
      // The reply to those who have joined comes when all have.
      if (const absl::Status status = JoinComm(session, request); !status.ok()) {
        Reply(session, id, status);
      }
      return;
    case shm::RequestType::kCommDestroy:
      return Reply(session, id, DestroyComm(session, request.comm.comm_id, /*abort=*/false));
    case shm::RequestType::kCommAbort:
      return Reply(session, id, DestroyComm(session, request.comm.comm_id, /*abort=*/true));
    case shm::RequestType::kCommCodec:
      return Reply(session, id, SetCodec(session, request));
    case shm::RequestType::kRegisterMemfd:
      return reply_value(RegisterMemfd(session, request, fds[0]));
    case shm::RequestType::kRegisterAddress:
      return reply_value(RegisterAddress(session, request));
    case shm::RequestType::kDeregister:
      return Reply(session, id, Deregister(session, request.deregister.buffer_id));
    case shm::RequestType::kHandOverMemory:
      return Reply(session, id, TakeMemory(session, fds.all()));
    case shm::RequestType::kCommRelays:
      return HandOutRelays(session, request);
    case shm::RequestType::kRegisterCuda:
      return RegisterCuda(session, request, std::move(fds));
    case shm::RequestType::kOrderMemory:
      return HandOutOrder(session, request);
  }
}

absl::Status Engine::Hello(Session& session, const shm::Request& request) {
  if (session.port) return absl::FailedPreconditionError("Hello was said before");
  SPCCL_RETURN_IF_ERROR(session.refusal);
  if (request.hello.major != shm::kSessionMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("libspccl speaks version ", request.hello.major, " of the protocol, spccld ",
                     shm::kSessionMajor, ": they must be of the same release"));
  }
  UniqueFd segment_fd;
  SPCCL_ASSIGN_OR_RETURN(MappingRef segment, OpenSegment(session, &segment_fd));
  session.name = Printable(shm::TextOf(request.hello.name));
  session.port = std::make_shared<CompletionPort>(std::move(segment));
  shm::Segment* const rings = session.port->segment();
  session.submissions.emplace(&rings->submission_control, rings->submissions,
                              shm::kSubmissionCapacity);
  session.hello_deadline_ns = 0;
  shm::LetPassDescriptors(session.socket.get());
  shm::Reply reply{};
  reply.magic = shm::kSessionMagic;
  reply.type = shm::ReplyType::kReply;
  reply.request_id = request.request_id;
  reply.value = boot_id_;
  reply.minor = shm::kSessionMinor;
  Send(session, reply, {segment_fd.get(), session.doorbell.get()});
  Record("session-open", session.peer.job_id, 0, session.peer.uid,
         absl::StrCat("session ", session.id, " (pid ", session.peer.pid, ", ", session.name, ")"));
  return absl::OkStatus();
}

absl::StatusOr<MappingRef> Engine::OpenSegment(Session& session, UniqueFd* segment_fd) {
  SPCCL_ASSIGN_OR_RETURN(*segment_fd, CreateSealedMemfd("spccl-session", sizeof(shm::Segment)));
  SPCCL_ASSIGN_OR_RETURN(SharedMapping mapping,
                         SharedMapping::Create(segment_fd->get(), sizeof(shm::Segment)));
  session.doorbell.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!session.doorbell.valid()) return ErrnoStatus(errno, "eventfd");
  // Edge-triggered and never read: the client shares the open file and could make a read block.
  const uint64_t id = session.id;
  SPCCL_ASSIGN_OR_RETURN(
      session.doorbell_token,
      loop_->Watch(session.doorbell.get(), EPOLLIN | EPOLLET, [this, id](uint32_t) {
        DrainSubmissions(id);
        NudgeTasks(id);
      }));
  auto* const rings = new (mapping.data()) shm::Segment{};
  rings->magic = shm::kSegmentMagic;
  rings->version = shm::kShmVersion;
  rings->submission_capacity = shm::kSubmissionCapacity;
  rings->completion_capacity = shm::kCompletionCapacity;
  // The core thread sleeps unless it is in the middle of this ring. Not shared yet: relaxed.
  rings->submission_control.sleepers.store(1, std::memory_order_relaxed);
  return reaper_.Own(std::move(mapping));
}

absl::Status Engine::OpenRelays(CommEntry& entry) {
  if (entry.relay_control) return absl::OkStatus();
  if (entry.comm.forming() || entry.across()) {
    return absl::FailedPreconditionError("the communicator is not one of this node alone");
  }
  const uint32_t ranks = entry.comm.ranks();
  SPCCL_ASSIGN_OR_RETURN(entry.relay_memory,
                         CreateSealedMemfd("spccl-relays", shm::RelayBytes(ranks)));
  SPCCL_ASSIGN_OR_RETURN(
      SharedMapping control,
      SharedMapping::Create(entry.relay_memory.get(), shm::RelaySlotsOffset(ranks)));
  entry.relay_control = reaper_.Own(std::move(control));
  return absl::OkStatus();
}

void Engine::HandOutRelays(Session& session, const shm::Request& request) {
  const auto found = session.memberships.find(request.comm.comm_id);
  if (found == session.memberships.end()) {
    return Reply(session, request.request_id,
                 absl::NotFoundError(absl::StrCat("communicator ", request.comm.comm_id,
                                                  " is not one of this process")));
  }
  CommEntry& entry = *registry_.FindComm(found->second.comm_id);
  if (const absl::Status status = OpenRelays(entry); !status.ok()) {
    return Reply(session, request.request_id, status);
  }
  shm::Reply reply{};
  reply.magic = shm::kSessionMagic;
  reply.type = shm::ReplyType::kReply;
  reply.request_id = request.request_id;
  Send(session, reply, {entry.relay_memory.get()});
}

absl::Status Engine::CheckBufferLimits(const Session& session, uint64_t more_bytes) {
  const Limits& limits = options_.limits;
  if (session.buffers.size() >= limits.buffers_per_session) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the process has ", session.buffers.size(),
                     " registered buffers, its limit (limits.buffers)"));
  }
  // It may hold more than a limit that was lowered since.
  if (session.buffer_bytes > limits.buffer_bytes_per_session ||
      more_bytes > limits.buffer_bytes_per_session - session.buffer_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("registering ", more_bytes, " bytes more than the ", session.buffer_bytes,
                     " registered would pass the limit of ", limits.buffer_bytes_per_session,
                     " (limits.buffer_bytes)"));
  }
  return CheckBufferQuota(session.peer.job_id, more_bytes);
}

absl::StatusOr<MappingRef> Engine::MapOnce(Session& session, int fd, uint64_t least_bytes,
                                           uint64_t* memory_id) {
  SPCCL_RETURN_IF_ERROR(CheckSealedMemfd(fd, least_bytes).status());
  SPCCL_RETURN_IF_ERROR(RefuseHugePages(fd));
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "fstat of a memfd");
  const FileKey key{.device = info.st_dev, .inode = info.st_ino};
  *memory_id = registry_.next_memory_id++;
  const auto known = session.files.find(key);
  if (known != session.files.end()) {
    const MappingRef mapping = known->second.mapping.lock();
    if (mapping) *memory_id = known->second.memory_id;
    if (mapping && mapping->size_bytes() >= least_bytes) return mapping;
  }
  // No more than was asked for, and so counted: the file may be larger than all memory.
  SPCCL_ASSIGN_OR_RETURN(SharedMapping mapping, SharedMapping::Create(fd, least_bytes));
  MappingRef owned = reaper_.Own(std::move(mapping));
  session.files[key] = MappedFile{.mapping = owned, .memory_id = *memory_id};
  return owned;
}

absl::StatusOr<uint64_t> Engine::RegisterMemfd(Session& session, const shm::Request& request,
                                               int fd) {
  Buffer buffer;
  buffer.address = request.buffer.address;
  buffer.size_bytes = request.buffer.size_bytes;
  if (buffer.size_bytes == 0) return absl::InvalidArgumentError("a buffer of 0 bytes");
  if (request.buffer.stages_gpu != 0) {
    buffer.gpu_kind = GpuKind::kStaged;
    std::memcpy(buffer.gpu_id.bytes, request.buffer.gpu, sizeof buffer.gpu_id.bytes);
  }
  SPCCL_RETURN_IF_ERROR(CheckBufferLimits(session, buffer.size_bytes));
  SPCCL_ASSIGN_OR_RETURN(buffer.mapping,
                         MapOnce(session, fd, buffer.size_bytes, &buffer.memory_id));
  return AddBuffer(session, std::move(buffer));
}

absl::StatusOr<uint64_t> Engine::RegisterAddress(Session& session, const shm::Request& request) {
  Buffer buffer;
  buffer.address = request.buffer.address;
  buffer.size_bytes = request.buffer.size_bytes;
  if (buffer.address == 0 || buffer.size_bytes == 0 ||
      buffer.size_bytes > std::numeric_limits<uint64_t>::max() - buffer.address) {
    return absl::InvalidArgumentError(
        absl::StrCat(buffer.size_bytes, " bytes at address ", absl::Hex(buffer.address)));
  }
  if (session.memory == nullptr) {
    return absl::FailedPreconditionError(
        "the process has not handed over its memory: no cross-memory attach");
  }
  SPCCL_RETURN_IF_ERROR(CheckBufferLimits(session, buffer.size_bytes));
  return AddBuffer(session, std::move(buffer));
}

absl::StatusOr<uint64_t> Engine::AddBuffer(Session& session, Buffer buffer) {
  const uint64_t id = registry_.next_buffer_id++;
  session.buffer_bytes += buffer.size_bytes;
  registry_.jobs[session.peer.job_id].buffer_bytes += buffer.size_bytes;
  registry_.buffers.Add(buffer.kind(), buffer.size_bytes);
  session.buffers.emplace(id, std::move(buffer));
  return id;
}

absl::Status Engine::Deregister(Session& session, uint64_t buffer_id) {
  const auto found = session.buffers.find(buffer_id);
  if (found == session.buffers.end()) {
    return absl::NotFoundError(absl::StrCat("buffer ", buffer_id, " is not registered"));
  }
  session.buffer_bytes -= found->second.size_bytes;
  registry_.jobs[session.peer.job_id].buffer_bytes -= found->second.size_bytes;
  registry_.buffers.Remove(found->second.kind(), found->second.size_bytes);
  session.buffers.erase(found);
  std::erase_if(session.files, [](const auto& file) { return file.second.mapping.expired(); });
  return absl::OkStatus();
}

absl::Status Engine::TakeMemory(Session& session, std::span<UniqueFd> fds) {
  if (session.peer.pid == 0) {
    return absl::FailedPreconditionError(
        "the process is in a PID namespace that spccld does not see: no cross-memory attach");
  }
  if (session.memory != nullptr) return absl::FailedPreconditionError("it was handed over before");
  SPCCL_ASSIGN_OR_RETURN(session.memory, runtime::ProcessMemory::Take(session.peer.pid, fds));
  return absl::OkStatus();
}

}  // namespace spccl::daemon
