#include "tests/client/fake_daemon.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "proto/shm/order.h"
#include "proto/shm/relay.h"
#include "proto/shm/socket.h"

namespace spccl::testing {
namespace {

using shm::RequestType;
using shm::Result;

shm::Segment* SegmentOf(const SharedMapping& mapping) {
  return reinterpret_cast<shm::Segment*>(mapping.data());
}

shm::OrderMemory* OrderOf(const SharedMapping& mapping) {
  return reinterpret_cast<shm::OrderMemory*>(mapping.data());
}

size_t BytesOf(const shm::Submission& submission) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return submission.count * kBytes[submission.dtype];
}

// By system call, as the real daemon does: what the sanitizers see of it is what they see there.
void CopyMemory(uint64_t to, uint64_t from, size_t bytes) {
  std::vector<char> copy(bytes);
  iovec local{copy.data(), bytes};
  iovec source{reinterpret_cast<void*>(from), bytes};
  iovec target{reinterpret_cast<void*>(to), bytes};
  const auto whole = static_cast<ssize_t>(bytes);
  SPCCL_CHECK(::process_vm_readv(::getpid(), &local, 1, &source, 1, 0) == whole);
  SPCCL_CHECK(::process_vm_writev(::getpid(), &local, 1, &target, 1, 0) == whole);
}

}  // namespace

shm::Reply Notice(shm::ReplyType type, uint64_t value, Result result, const std::string& message) {
  shm::Reply reply{};
  reply.magic = shm::kSessionMagic;
  reply.type = type;
  reply.result = static_cast<uint32_t>(result);
  reply.value = value;
  shm::SetText(reply.message, message);
  return reply;
}

FakeDaemon::FakeDaemon() {
  ::setenv("SPCCL_RUNTIME_DIR", folder_.c_str(), 1);
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Listen();
}

FakeDaemon::~FakeDaemon() {
  Kill();
}

void FakeDaemon::Listen() {
  auto listener = shm::ListenSession(folder_ + "/session.sock", 0600);
  SPCCL_CHECK(listener.ok());
  listener_ = *std::move(listener);
  stop_ = false;
  thread_ = std::thread([this] { Serve(); });
}

void FakeDaemon::Kill() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  listener_.Reset();
  held_replies_.clear();
  arrivals_.clear();
  matching_.clear();
  held_.clear();
  sessions_.clear();
  deaf_.clear();
}

void FakeDaemon::GoDeaf() {
  {
    const std::lock_guard lock(mutex_);
    for (const SessionPtr& session : sessions_) ::shutdown(session->socket.get(), SHUT_RD);
    deaf_ = std::move(sessions_);
    sessions_.clear();
  }
  Wake();
}

void FakeDaemon::Restart() {
  Listen();
}

void FakeDaemon::Wake() {
  const uint64_t one = 1;
  SPCCL_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one);
}

void FakeDaemon::Serve() {
  for (;;) {
    std::vector<SessionPtr> sessions;
    std::vector<pollfd> fds;
    int timeout_ms;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      timeout_ms = awake_ ? 1 : -1;
      sessions = sessions_;
    }
    fds.push_back({wake_.get(), POLLIN, 0});
    fds.push_back({listener_.get(), POLLIN, 0});
    for (const SessionPtr& session : sessions) {
      fds.push_back({session->socket.get(), POLLIN, 0});
      fds.push_back({session->doorbell.get(), POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), timeout_ms);
    const std::lock_guard lock(mutex_);
    uint64_t count;
    if (fds[0].revents != 0) SPCCL_CHECK(::read(wake_.get(), &count, sizeof count) > 0);
    if (fds[1].revents != 0) Accept();
    for (size_t i = 0; i < sessions.size(); ++i) {
      // Rings first: what was submitted before a request was submitted before it.
      if (TakeRings(sessions[i]) || awake_) Collect(sessions[i]);
      if (fds[2 * i + 2].revents != 0) OnReadable(sessions[i]);
    }
    changed_.notify_all();
  }
}

void FakeDaemon::Accept() {
  auto session = std::make_shared<Session>();
  session->socket.Reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  session->doorbell.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  sessions_.push_back(std::move(session));
  ++opened_;
}

void FakeDaemon::OnReadable(const SessionPtr& session) {
  shm::Request request;
  auto packet = shm::ReceivePacket(session->socket.get(), &request, sizeof request);
  if (!packet.ok() || packet->bytes == 0) {
    std::erase(sessions_, session);
    return;
  }
  SPCCL_CHECK(packet->bytes == sizeof request && request.magic == shm::kSessionMagic);
  Collect(session);
  ++seen_requests_[request.type];
  if (const auto refused = refused_.find(request.type); refused != refused_.end()) {
    return Answer(session, request.request_id, 0, refused->second.first, refused->second.second);
  }
  const auto held = held_replies_.find(request.type);
  if (held == held_replies_.end()) return Handle(session, request, &*packet);
  auto kept = std::make_shared<shm::Packet>(*std::move(packet));
  held->second.push_back([=, this] { Handle(session, request, kept.get()); });
}

void FakeDaemon::Handle(const SessionPtr& session, const shm::Request& request,
                        shm::Packet* packet) {
  switch (request.type) {
    case RequestType::kHello:
      shm::LetPassDescriptors(session->socket.get());
      return SayHello(session, request);
    case RequestType::kCommInit:
      return JoinRank(session, request);
    case RequestType::kCommAbort:
      EndComm(session, request.comm.comm_id);
      break;
    case RequestType::kRegisterMemfd: {
      SPCCL_CHECK(packet->fds.size() == 1);
      SPCCL_CHECK(CheckSealedMemfd(packet->fds[0].get(), request.buffer.size_bytes).ok());
      auto mapping = SharedMapping::Create(packet->fds[0].get(), request.buffer.size_bytes);
      SPCCL_CHECK(mapping.ok());
      session->buffers[next_id_] = *std::move(mapping);
      return Answer(session, request.request_id, next_id_++);
    }
    case RequestType::kRegisterCuda:
      session->gpu_buffers[next_id_] = request.register_cuda.address;
      return Answer(session, request.request_id, next_id_++);
    case RequestType::kOrderMemory:
      session->order = GiveMemory(session, request, sizeof(shm::OrderMemory));
      return;
    case RequestType::kCommRelays:
      if (!offers_relays_) break;
      GiveMemory(session, request, shm::RelayBytes(session->comms.at(request.comm.comm_id).second));
      return;
    case RequestType::kRegisterAddress:
      return Answer(session, request.request_id, next_id_++);
    case RequestType::kHandOverMemory:
      if (can_attach_) break;
      return Answer(session, request.request_id, 0, Result::kSystemError, "not permitted");
    case RequestType::kDeregister:
      session->buffers.erase(request.deregister.buffer_id);
      break;
    default:
      break;
  }
  Answer(session, request.request_id, 0);
}

// As the answer.
SharedMapping FakeDaemon::GiveMemory(const SessionPtr& session, const shm::Request& request,
                                     size_t bytes) {
  const auto memfd = CreateSealedMemfd("fake-memory", bytes);
  SPCCL_CHECK(memfd.ok());
  shm::Reply reply = Notice(shm::ReplyType::kReply, 0, Result::kSuccess, "");
  reply.request_id = request.request_id;
  (void)shm::SendPacket(session->socket.get(), &reply, sizeof reply, {memfd->get()});
  return SharedMapping::Create(memfd->get(), bytes).value();
}

void FakeDaemon::SayHello(const SessionPtr& session, const shm::Request& request) {
  auto memfd = CreateSealedMemfd("fake-segment", sizeof(shm::Segment));
  SPCCL_CHECK(memfd.ok());
  session->segment = SharedMapping::Create(memfd->get(), sizeof(shm::Segment)).value();
  shm::Segment* segment = SegmentOf(session->segment);
  segment->magic = shm::kSegmentMagic;
  segment->version = segment_version_;
  segment->submission_capacity = shm::kSubmissionCapacity;
  segment->completion_capacity = shm::kCompletionCapacity;
  segment->submission_control.sleepers.store(awake_ ? 0 : 1, std::memory_order_relaxed);
  session->submissions = std::make_unique<shm::Consumer<shm::Submission>>(
      &segment->submission_control, segment->submissions, shm::kSubmissionCapacity);
  session->completions = std::make_unique<shm::Producer<shm::Completion>>(
      &segment->completion_control, segment->completions, shm::kCompletionCapacity);
  shm::Reply reply = Notice(shm::ReplyType::kReply, /*value=*/1, Result::kSuccess, "");
  reply.request_id = request.request_id;
  reply.minor = minor_;
  (void)shm::SendPacket(session->socket.get(), &reply, sizeof reply,
                        {memfd->get(), session->doorbell.get()});
}

void FakeDaemon::JoinRank(const SessionPtr& session, const shm::Request& request) {
  const auto& init = request.comm_init;
  const std::string id(reinterpret_cast<const char*>(init.unique_id), sizeof init.unique_id);
  std::vector<Arrival>& arrivals = arrivals_[id];
  arrivals.push_back({session, request.request_id});
  if (arrivals.size() < init.ranks) return;
  for (const Arrival& arrival : arrivals) {
    const auto comm_id = static_cast<uint32_t>(next_id_++);
    arrival.session->comms[comm_id] = {id, init.ranks};
    Answer(arrival.session, arrival.request_id, comm_id);
  }
  arrivals_.erase(id);
}

void FakeDaemon::Answer(const SessionPtr& session, uint64_t request_id, uint64_t value,
                        Result result, const std::string& message) {
  shm::Reply reply = Notice(shm::ReplyType::kReply, value, result, message);
  reply.request_id = request_id;
  // Unique ids differ by their number; for other requests the payload means nothing.
  const uint64_t number = next_id_++;
  std::memcpy(reply.payload, &number, sizeof number);
  (void)shm::SendPacket(session->socket.get(), &reply, sizeof reply);
}

bool FakeDaemon::TakeRings(const SessionPtr& session) {
  uint64_t count;
  if (::read(session->doorbell.get(), &count, sizeof count) < 0) return false;
  rings_ += count;
  return true;
}

void FakeDaemon::Collect(const SessionPtr& session) {
  if (session->submissions == nullptr) return;
  shm::Submission submission;
  while (session->submissions->TryPop(&submission) == shm::RingState::kReady) {
    seen_submissions_.push_back(submission);
    if (hold_operations_) {
      held_.push_back({session, submission});
    } else {
      Match(session, submission);
    }
  }
}

void FakeDaemon::Match(const SessionPtr& session, const shm::Submission& submission) {
  const auto comm = session->comms.find(submission.comm_id);
  SPCCL_CHECK(comm != session->comms.end());
  const auto [id, ranks] = comm->second;
  if (ended_.contains(id)) {
    return Complete(session, submission, Result::kRemoteError, "aborted");
  }
  std::vector<Waiting>& waiting = matching_[{id, submission.sequence}];
  waiting.push_back({session, submission});
  if (waiting.size() < ranks) return;
  const auto address = [&](const shm::BufferRef& ref) {
    if (ref.buffer_id == shm::kRawAddress) return ref.offset;
    const auto gpu = session->gpu_buffers.find(ref.buffer_id);
    if (gpu != session->gpu_buffers.end()) return gpu->second + ref.offset;
    const auto buffer = session->buffers.find(ref.buffer_id);
    SPCCL_CHECK(buffer != session->buffers.end());
    return reinterpret_cast<uint64_t>(buffer->second.data()) + ref.offset;
  };
  for (const Waiting& each : waiting) AwaitReady(each.session, each.submission);
  if (ranks == 1 && operation_result_.first == Result::kSuccess && submission.count > 0) {
    CopyMemory(address(submission.recv), address(submission.send), BytesOf(submission));
  }
  for (const Waiting& each : waiting) {
    Complete(each.session, each.submission, operation_result_.first, operation_result_.second);
  }
  matching_.erase({id, submission.sequence});
}

void FakeDaemon::AwaitReady(const SessionPtr& session, const shm::Submission& submission) {
  if (submission.order_slot == 0) return;
  shm::OrderSlot& slot = OrderOf(session->order)->slots[submission.order_slot - 1];
  const int64_t deadline_ns = MonotonicNanos() + 10'000'000'000;
  while (static_cast<int32_t>(slot.ready.load(std::memory_order_acquire) - submission.order_value) <
         0) {
    SPCCL_CHECK(MonotonicNanos() < deadline_ns);
    std::this_thread::yield();
  }
  if (submission.order_slot > shm::kEagerSlots) slot.ready.store(0, std::memory_order_relaxed);
}

void FakeDaemon::Complete(const SessionPtr& session, const shm::Submission& submission,
                          Result result, const std::string& message) {
  shm::Completion completion{};
  completion.ticket = submission.ticket;
  completion.result = static_cast<uint32_t>(result);
  completion.comm_id = submission.comm_id;
  shm::SetText(completion.message, message);
  // As the daemon does: who has waited for the stream asks for the error next.
  Push(session, completion);
  if (submission.order_slot != 0 && !omits_done_) {
    OrderOf(session->order)
        ->slots[submission.order_slot - 1]
        .done.store(submission.order_value, std::memory_order_release);
  }
}

void FakeDaemon::Push(const SessionPtr& session, const shm::Completion& completion) {
  SPCCL_CHECK(session->completions->TryPush(completion) == shm::RingState::kReady);
  if (session->completions->NeedsWake()) FutexWakeAll(session->completions->futex());
}

// Of all its ranks.
void FakeDaemon::EndComm(const SessionPtr& session, uint32_t comm_id) {
  const auto comm = session->comms.find(comm_id);
  if (comm == session->comms.end()) return;
  const std::string& id = comm->second.first;
  ended_.insert(id);
  const auto end = [&](std::vector<Waiting>* waiting) {
    std::erase_if(*waiting, [&](const Waiting& each) {
      if (each.session->comms.at(each.submission.comm_id).first != id) return false;
      Complete(each.session, each.submission, Result::kRemoteError, "aborted");
      return true;
    });
  };
  for (auto& [key, waiting] : matching_) end(&waiting);
  end(&held_);
  for (const SessionPtr& each : sessions_) {
    for (const auto& [other, of] : each->comms) {
      if (of.first != id || (each == session && other == comm_id)) continue;
      const shm::Reply notice =
          Notice(shm::ReplyType::kCommFailed, other, Result::kRemoteError, "aborted");
      (void)shm::SendPacket(each->socket.get(), &notice, sizeof notice);
    }
  }
}

void FakeDaemon::OfferRelays() {
  const std::lock_guard lock(mutex_);
  offers_relays_ = true;
}

void FakeDaemon::OmitDone() {
  const std::lock_guard lock(mutex_);
  omits_done_ = true;
}

void FakeDaemon::StayAwake() {
  {
    const std::lock_guard lock(mutex_);
    awake_ = true;
    for (const SessionPtr& session : sessions_) {
      if (session->submissions) {
        session->submissions->sleepers()->store(0, std::memory_order_relaxed);
      }
    }
  }
  Wake();
}

uint64_t FakeDaemon::rings() {
  const std::lock_guard lock(mutex_);
  for (const SessionPtr& session : sessions_) {
    if (TakeRings(session)) Collect(session);
  }
  return rings_;
}

void FakeDaemon::SetAttach(bool can_attach) {
  const std::lock_guard lock(mutex_);
  can_attach_ = can_attach;
}

void FakeDaemon::SetSegmentVersion(uint32_t version) {
  const std::lock_guard lock(mutex_);
  segment_version_ = version;
}

void FakeDaemon::SetMinor(uint16_t minor) {
  const std::lock_guard lock(mutex_);
  minor_ = minor;
}

void FakeDaemon::HoldOperations(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_operations_ = hold;
  if (hold) return;
  for (const Waiting& each : std::exchange(held_, {})) Match(each.session, each.submission);
}

void FakeDaemon::HoldReplies(RequestType type, bool hold) {
  const std::lock_guard lock(mutex_);
  if (hold) {
    held_replies_[type];
    return;
  }
  const auto replies = std::exchange(held_replies_[type], {});
  held_replies_.erase(type);
  for (const auto& reply : replies) reply();
}

void FakeDaemon::Refuse(RequestType type, Result result, const std::string& message) {
  const std::lock_guard lock(mutex_);
  refused_[type] = {result, message};
}

void FakeDaemon::FailOperations(Result result, const std::string& message) {
  const std::lock_guard lock(mutex_);
  operation_result_ = {result, message};
}

void FakeDaemon::Send(const shm::Reply& notice) {
  const std::lock_guard lock(mutex_);
  for (const SessionPtr& session : sessions_) {
    (void)shm::SendPacket(session->socket.get(), &notice, sizeof notice);
  }
}

void FakeDaemon::SendRubbish(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::string rubbish(bytes, '\x5A');
  for (const SessionPtr& session : sessions_) {
    (void)shm::SendPacket(session->socket.get(), rubbish.data(), rubbish.size());
  }
}

void FakeDaemon::CorruptCompletionTail() {
  const std::lock_guard lock(mutex_);
  for (const SessionPtr& session : sessions_) {
    SegmentOf(session->segment)->completion_control.tail.fetch_add(1u << 31);
    FutexWakeAll(&SegmentOf(session->segment)->completion_control.tail);
  }
}

void FakeDaemon::CorruptSubmissionHead() {
  const std::lock_guard lock(mutex_);
  for (const SessionPtr& session : sessions_) {
    SegmentOf(session->segment)->submission_control.head.fetch_add(1u << 31);
  }
}

void FakeDaemon::CompleteTicket(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  shm::Completion completion{};
  completion.ticket = ticket;
  for (const SessionPtr& session : sessions_) Push(session, completion);
}

std::vector<shm::Submission> FakeDaemon::submissions() {
  const std::lock_guard lock(mutex_);
  return seen_submissions_;
}

size_t FakeDaemon::Requests(RequestType type) {
  const std::lock_guard lock(mutex_);
  return seen_requests_[type];
}

size_t FakeDaemon::sessions() {
  const std::lock_guard lock(mutex_);
  return opened_;
}

bool FakeDaemon::Await(const std::function<bool()>& condition) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), condition);
}

bool FakeDaemon::AwaitSubmissions(size_t count) {
  return Await([&] { return seen_submissions_.size() >= count; });
}

bool FakeDaemon::AwaitRequests(RequestType type, size_t count) {
  return Await([&] { return seen_requests_[type] >= count; });
}

bool FakeDaemon::AwaitSessionsOpen(size_t count) {
  return Await([&] { return sessions_.size() == count; });
}

}  // namespace spccl::testing
