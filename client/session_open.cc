// How a session comes about: what the environment says, hello, and what the daemon can reach.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/view.h"
#include "client/error.h"
#include "client/session.h"
#include "client/session_packet.h"
#include "client/threads.h"
#include "proto/shm/socket.h"

namespace spccl::client {
namespace {

// Below, cross-memory attach is about as fast, and costs this process nothing.
constexpr size_t kLeastRelayBytes = size_t{8} << 20;

std::atomic<uint64_t> g_serials{0};

absl::StatusOr<size_t> LeastRelayBytes() {
  const char* text = std::getenv("SPCCL_RELAY_BYTES");
  if (text == nullptr || *text == '\0') return kLeastRelayBytes;
  size_t bytes;
  if (absl::SimpleAtoi(text, &bytes)) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("SPCCL_RELAY_BYTES is \"", text, "\", expected a number of bytes"));
}

absl::StatusOr<bool> ForcesStaging() {
  const char* text = std::getenv("SPCCL_FORCE_STAGING");
  const std::string_view value = text == nullptr ? "" : text;
  if (value == "1") return true;
  if (value.empty() || value == "0") return false;
  return absl::InvalidArgumentError(
      absl::StrCat("SPCCL_FORCE_STAGING is \"", text, "\", expected 1 or 0"));
}

shm::Request NewRequest(shm::RequestType type) {
  shm::Request request{};
  request.type = type;
  return request;
}

// Bounds sending to a daemon that reads nothing.
absl::Status BoundSends(int socket) {
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
    return ErrnoStatus(errno, "SO_SNDTIMEO");
  }
  return absl::OkStatus();
}

absl::StatusOr<pid_t> PeerPid(int socket) {
  ucred peer;
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return peer.pid;
}

// One reply, for as long as nobody listens yet.
absl::StatusOr<shm::Packet> ReceiveReply(int socket, shm::Reply* reply) {
  pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
  const int timeout_ms = static_cast<int>(Session::kReplyTimeoutNs / 1'000'000);
  int rc;
  while ((rc = ::poll(&ready, 1, timeout_ms)) < 0 && errno == EINTR) continue;
  if (rc < 0) return ErrnoStatus(errno, "poll on the session socket");
  if (rc == 0) return absl::UnavailableError("no answer in time");
  SPCCL_ASSIGN_OR_RETURN(shm::Packet packet, shm::ReceivePacket(socket, reply, sizeof *reply));
  if (packet.bytes == 0) return absl::UnavailableError("it hung up");
  return packet;
}

}  // namespace

Session::Session(std::string path, UniqueFd socket, pid_t daemon_pid)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      daemon_pid_(daemon_pid),
      serial_(g_serials.fetch_add(1, std::memory_order_relaxed) + 1) {}

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& socket_path) {
  SPCCL_ASSIGN_OR_RETURN(const size_t least_relay_bytes, LeastRelayBytes());
  SPCCL_ASSIGN_OR_RETURN(const bool forces_staging, ForcesStaging());
  auto socket = shm::ConnectSession(socket_path);
  if (!socket.ok()) {
    const bool is_ours =
        absl::IsInvalidArgument(socket.status()) || absl::IsResourceExhausted(socket.status());
    if (is_ours) return socket.status();
    const bool is_closed = absl::IsPermissionDenied(socket.status());
    return absl::UnavailableError(absl::StrCat(
        is_closed ? "the spccl daemon cannot be reached: " : "no spccl daemon: ",
        socket.status().message(),
        is_closed
            ? " (its folder or its socket is closed to this user: `spcclctl doctor` says more)"
            : " (does spccld run, and does SPCCL_RUNTIME_DIR name its folder?)"));
  }
  SPCCL_RETURN_IF_ERROR(BoundSends(socket->get()));
  SPCCL_ASSIGN_OR_RETURN(const pid_t daemon_pid, PeerPid(socket->get()));
  std::shared_ptr<Session> session(new Session(socket_path, *std::move(socket), daemon_pid));
  SPCCL_RETURN_IF_ERROR(session->Hello());
  SPCCL_RETURN_IF_ERROR(session->StartListening());
  if (!forces_staging) {
    SPCCL_ASSIGN_OR_RETURN(session->can_attach_, session->HandOverMemory());
  }
  session->least_relay_bytes_ = least_relay_bytes;
  session->forces_staging_ = forces_staging;
  return session;
}

absl::Status Session::Hello() {
  shm::Request hello = NewRequest(shm::RequestType::kHello);
  hello.magic = shm::kSessionMagic;
  hello.request_id = next_request_++;
  hello.hello.major = shm::kSessionMajor;
  hello.hello.minor = shm::kSessionMinor;
  shm::SetText(hello.hello.name, program_invocation_short_name);
  const auto refused = [this](std::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("the daemon at ", path_, " does not open a session: ", View(why)));
  };
  if (absl::Status sent = shm::SendPacket(socket_.get(), &hello, sizeof hello); !sent.ok()) {
    return refused(std::string(sent.message()));
  }
  shm::Reply reply;
  auto packet = ReceiveReply(socket_.get(), &reply);
  if (!packet.ok()) return refused(std::string(packet.status().message()));
  if (packet->lost_fds) return OutOfDescriptors();
  if (!IsWellFormed(*packet, reply) || reply.request_id != hello.request_id) {
    return absl::InternalError("the daemon answered hello with something else");
  }
  if (reply.result != 0) {
    const absl::Status status = StatusOfWire(reply.result, shm::TextOf(reply.message));
    return Annotate(status, "the daemon at " + path_ + " does not open a session");
  }
  if (packet->fds.size() != shm::kHelloFdCount) {
    return absl::InternalError(absl::StrCat("the daemon passed ", packet->fds.size(),
                                            " descriptors with hello, expected ",
                                            shm::kHelloFdCount));
  }
  minor_ = static_cast<uint16_t>(std::min<uint32_t>(reply.minor, shm::kSessionMinor));
  SPCCL_ASSIGN_OR_RETURN(rings_, Rings::Create(std::move(packet->fds[shm::kHelloSegmentFd]),
                                               std::move(packet->fds[shm::kHelloDoorbellFd]),
                                               [this](absl::Status status) { Die(status); }));
  return absl::OkStatus();
}

absl::Status Session::StartListening() {
  SPCCL_ASSIGN_OR_RETURN(listener_, StartThread("spccl-session", [this] { Listen(); }));
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::HandOverMemory() {
  if (minor_ < 2) return false;  // an older daemon asks for rights that it should not need
  // What this process is now: after an exec the daemon can reach nothing of it.
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!memory.valid() || !maps.valid()) return false;
  // It may open and still not be read: after the first thread has ended, on older kernels.
  const uint64_t value = 0x5350434C'50524F42;
  uint64_t read = 0;
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(&value));
  if (::pread(memory.get(), &read, sizeof read, at) != sizeof read || read != value) return false;
  const bool taken = Ask(NewRequest(shm::RequestType::kHandOverMemory), "handing over memory",
                         {memory.get(), maps.get()})
                         .ok();
  SPCCL_RETURN_IF_ERROR(Health());
  return taken;
}

}  // namespace spccl::client
