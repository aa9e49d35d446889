#include "client/session.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/error.h"
#include "client/session_packet.h"
#include "proto/shm/socket.h"

namespace spccl::client {
namespace {

// Enough to keep the daemon busy; three communicators more always find room beside one.
constexpr uint64_t kLargestWindow = shm::kCompletionCapacity / 4;

}  // namespace

struct Session::Call {
  shm::RequestType type;
  uint64_t id;
  bool abandoned = false;
  bool done = false;
  shm::Reply reply;
  std::vector<UniqueFd> fds;
  bool lost_fds = false;
};

Session::~Session() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (!listener_.joinable()) return;
  if (listener_.get_id() == std::this_thread::get_id()) {
    listener_.detach();  // it is at its end: see Listen
  } else {
    listener_.join();
  }
}

absl::StatusOr<std::shared_ptr<Session::Call>> Session::Start(shm::Request request,
                                                              std::vector<int> fds) {
  auto call = std::make_shared<Call>();
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.ok()) return dead_;
    call->type = request.type;
    call->id = next_request_++;
    calls_.emplace(call->id, call);
  }
  request.magic = shm::kSessionMagic;
  request.request_id = call->id;
  const absl::Status sent =
      shm::SendPacket(socket_.get(), &request, sizeof request, std::move(fds));
  if (sent.ok()) return call;
  const std::lock_guard lock(mutex_);
  calls_.erase(call->id);
  if (!dead_.ok()) return dead_;
  return absl::UnavailableError(
      absl::StrCat("the daemon at ", path_, " takes no requests: ", sent.message()));
}

absl::StatusOr<shm::Reply> Session::Await(const std::shared_ptr<Call>& call, const char* phase,
                                          int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                         [&] { return call->done || !dead_.ok(); });
  if (call->done) {
    const absl::Status status = StatusOfWire(call->reply.result, shm::TextOf(call->reply.message));
    if (!status.ok()) return status;
    return call->reply;
  }
  if (!in_time) {
    call->abandoned = true;
    return absl::UnavailableError(absl::StrCat("the daemon at ", path_, " has not answered for ",
                                               timeout_ns / 1'000'000, " ms (phase: ", phase, ")"));
  }
  return Annotate(dead_, phase);
}

absl::StatusOr<shm::Reply> Session::Ask(const shm::Request& request, const char* phase,
                                        std::vector<int> fds) {
  SPCCL_ASSIGN_OR_RETURN(const auto call, Start(request, std::move(fds)));
  return Await(call, phase);
}

void Session::Tell(shm::Request request) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.ok()) return;
    request.request_id = next_request_++;
  }
  request.magic = shm::kSessionMagic;
  // If it cannot be sent the session is ending, and what it is about with it.
  (void)CatchAll([&] { return shm::SendPacket(socket_.get(), &request, sizeof request); });
}

void Session::Abandon(const std::shared_ptr<Call>& call) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(call->abandoned, true)) return;
  if (call->done && call->reply.result == 0) AbandonLocked(*call, call->reply.value);
}

absl::StatusOr<UniqueFd> Session::AskForDescriptor(const shm::Request& request, const char* phase) {
  SPCCL_ASSIGN_OR_RETURN(const auto call, Start(request));
  SPCCL_RETURN_IF_ERROR(Await(call, phase).status());
  const std::lock_guard lock(mutex_);
  if (call->lost_fds) return OutOfDescriptors();
  if (call->fds.size() == 1) return std::move(call->fds.front());
  return absl::InternalError(
      absl::StrCat("the daemon passed ", call->fds.size(), " descriptors, expected 1"));
}

absl::Status Session::Health() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

bool Session::IsOpen() const {
  pollfd state{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) {
    return false;
  }
  return Health().ok();
}

absl::Status Session::CommHealth(uint32_t comm_id) const {
  const std::lock_guard lock(mutex_);
  if (!dead_.ok()) return dead_;
  const auto failed = failed_comms_.find(comm_id);
  return failed == failed_comms_.end() ? absl::OkStatus() : failed->second;
}

void Session::ForgetComm(uint32_t comm_id) {
  const std::lock_guard lock(mutex_);
  failed_comms_.erase(comm_id);
}

uint64_t Session::Window() const {
  return std::min<uint64_t>(ShareOf(shm::kCompletionCapacity), kLargestWindow);
}

uint32_t Session::ShareOf(uint32_t total) const {
  return std::max(1u, total / std::max(1u, comms_.load(std::memory_order_relaxed)));
}

absl::Status Session::DaemonIs(const char* what) const {
  return absl::UnavailableError(
      absl::StrCat("the daemon (spccld, pid ", daemon_pid_, ") at ", path_, " ", what));
}

absl::Status Session::ListenUntilEnd() {
  shm::Reply reply;
  for (;;) {
    auto packet = shm::ReceivePacket(socket_.get(), &reply, sizeof reply);
    if (!packet.ok() || packet->bytes == 0) {
      const std::lock_guard lock(mutex_);
      return goodbye_.ok() ? DaemonIs("has gone") : goodbye_;
    }
    if (!IsWellFormed(*packet, reply)) {
      return absl::InternalError(
          absl::StrCat("the daemon at ", path_, " sent a message that is none"));
    }
    Dispatch(reply, *std::move(packet));
  }
}

void Session::Listen() {
  const absl::Status end = CatchAll([this] { return ListenUntilEnd(); });
  // Operations own their session: those that end here may be the last owners of this one, which
  // must then live until no lock of its own is held. Null if the destructor is waiting for this
  // thread.
  const std::shared_ptr<Session> self = weak_from_this().lock();
  Die(end);
}

void Session::Dispatch(const shm::Reply& reply, shm::Packet packet) {
  const std::lock_guard lock(mutex_);
  switch (reply.type) {
    case shm::ReplyType::kReply: {
      const auto found = calls_.find(reply.request_id);
      if (found == calls_.end()) return;
      const std::shared_ptr<Call> call = std::move(found->second);
      calls_.erase(found);
      call->reply = reply;
      // Lost ones are missed by who has asked for them.
      call->fds = std::move(packet.fds);
      call->lost_fds = packet.lost_fds;
      call->done = true;
      if (call->abandoned && reply.result == 0) AbandonLocked(*call, reply.value);
      break;
    }
    case shm::ReplyType::kCommFailed:
      // The first reason is the cause, later ones its consequences.
      failed_comms_.emplace(static_cast<uint32_t>(reply.value),
                            StatusOfWire(reply.result, shm::TextOf(reply.message)));
      break;
    case shm::ReplyType::kGoodbye:
      goodbye_ = reply.result == 0 ? DaemonIs("has stopped")
                                   : StatusOfWire(reply.result, shm::TextOf(reply.message));
      break;
  }
  changed_.notify_all();
}

// What nobody waits for any more: a communicator, whose other ranks must not wait for us, or a
// buffer, which the daemon would keep.
void Session::AbandonLocked(const Call& call, uint64_t value) noexcept {
  shm::Request request{};
  switch (call.type) {
    case shm::RequestType::kCommInit:
      request.type = shm::RequestType::kCommAbort;
      request.comm.comm_id = static_cast<uint32_t>(value);
      break;
    case shm::RequestType::kRegisterMemfd:
    case shm::RequestType::kRegisterAddress:
    case shm::RequestType::kRegisterCuda:
      request.type = shm::RequestType::kDeregister;
      request.deregister.buffer_id = value;
      break;
    default:
      return;
  }
  request.magic = shm::kSessionMagic;
  request.request_id = next_request_++;
  // If it cannot be sent the session is ending, and what it holds with it.
  (void)CatchAll([&] { return shm::SendPacket(socket_.get(), &request, sizeof request); });
}

void Session::Die(const absl::Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!dead_.ok()) return;
    dead_ = reason;
    calls_.clear();
  }
  // Ends the listener, and tells the daemon if it is there.
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify_all();
  rings_->Fail(reason);
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    calls.swap(when_dead_);
  }
  for (const auto& call : calls) call();
}

void Session::WhenDead(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_ended_) return when_dead_.push_back(std::move(call));
  }
  call();
}

}  // namespace spccl::client
