#include "tests/support/raw_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "collective/op.h"
#include "kernels/dtype.h"
#include "kernels/redop.h"

namespace spccl::testing {
namespace {

int64_t DeadlineIn(int64_t timeout_ms) {
  return MonotonicNanos() + timeout_ms * 1'000'000;
}

absl::Status ResultStatus(const shm::Reply& reply) {
  if (reply.result == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("result ", reply.result, ": ", std::string(shm::TextOf(reply.message))));
}

}  // namespace

absl::StatusOr<RawClient> RawClient::Connect(const std::string& socket_path) {
  SPCCL_ASSIGN_OR_RETURN(UniqueFd socket, shm::ConnectSession(socket_path));
  return RawClient(std::move(socket));
}

absl::StatusOr<RawClient> RawClient::Open(const std::string& socket_path) {
  SPCCL_ASSIGN_OR_RETURN(RawClient client, Connect(socket_path));
  SPCCL_RETURN_IF_ERROR(client.Hello());
  return client;
}

shm::Request RawClient::Make(shm::RequestType type) {
  shm::Request request{};
  request.magic = shm::kSessionMagic;
  request.type = type;
  request.request_id = next_request_id_++;
  return request;
}

absl::Status RawClient::SendBytes(const void* data, size_t bytes, const std::vector<int>& fds) {
  return shm::SendPacket(socket_.get(), data, bytes, fds);
}

absl::Status RawClient::Send(const shm::Request& request, const std::vector<int>& fds) {
  return SendBytes(&request, sizeof request, fds);
}

absl::StatusOr<shm::Reply> RawClient::Receive(int64_t deadline_ns, std::vector<UniqueFd>* fds) {
  pollfd query{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  const int64_t left_ms = (deadline_ns - MonotonicNanos()) / 1'000'000;
  if (left_ms <= 0 || ::poll(&query, 1, static_cast<int>(left_ms)) <= 0) {
    return absl::DeadlineExceededError("no reply");
  }
  shm::Reply reply;
  SPCCL_ASSIGN_OR_RETURN(shm::Packet packet,
                         shm::ReceivePacket(socket_.get(), &reply, sizeof reply));
  if (packet.bytes == 0) return absl::UnavailableError("the daemon has hung up");
  if (packet.bytes != sizeof reply || packet.truncated) return absl::InternalError("odd packet");
  if (fds != nullptr) *fds = std::move(packet.fds);
  return reply;
}

absl::StatusOr<shm::Reply> RawClient::AwaitReply(uint64_t request_id, int64_t timeout_ms) {
  const int64_t deadline_ns = DeadlineIn(timeout_ms);
  for (auto it = replies_.begin(); it != replies_.end(); ++it) {
    if (it->request_id != request_id) continue;
    const shm::Reply reply = *it;
    replies_.erase(it);
    return reply;
  }
  while (true) {
    SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, Receive(deadline_ns));
    if (reply.type != shm::ReplyType::kReply) {
      notices_.push_back(reply);
    } else if (reply.request_id == request_id) {
      return reply;
    } else {
      replies_.push_back(reply);
    }
  }
}

absl::StatusOr<shm::Reply> RawClient::AwaitNotice(shm::ReplyType type, int64_t timeout_ms) {
  const int64_t deadline_ns = DeadlineIn(timeout_ms);
  while (true) {
    for (auto it = notices_.begin(); it != notices_.end(); ++it) {
      if (it->type != type) continue;
      const shm::Reply notice = *it;
      notices_.erase(it);
      return notice;
    }
    SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, Receive(deadline_ns));
    (reply.type == shm::ReplyType::kReply ? replies_ : notices_).push_back(reply);
  }
}

absl::StatusOr<shm::Reply> RawClient::Call(const shm::Request& request,
                                           const std::vector<int>& fds) {
  SPCCL_RETURN_IF_ERROR(Send(request, fds));
  return AwaitReply(request.request_id);
}

bool RawClient::AwaitHangup(int64_t timeout_ms) {
  const int64_t deadline_ns = DeadlineIn(timeout_ms);
  while (true) {
    const absl::StatusOr<shm::Reply> reply = Receive(deadline_ns);
    if (!reply.ok()) return !absl::IsDeadlineExceeded(reply.status());
    (reply->type == shm::ReplyType::kReply ? replies_ : notices_).push_back(*reply);
  }
}

absl::Status RawClient::Hello(uint16_t major) {
  shm::Request request = Make(shm::RequestType::kHello);
  request.hello.major = major;
  request.hello.minor = shm::kSessionMinor;
  shm::SetText(request.hello.name, "raw-client");
  SPCCL_RETURN_IF_ERROR(Send(request));
  std::vector<UniqueFd> fds;
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, Receive(DeadlineIn(kPatienceMs), &fds));
  SPCCL_RETURN_IF_ERROR(ResultStatus(reply));
  if (fds.size() != shm::kHelloFdCount) return absl::InternalError("descriptors are missing");
  boot_id_ = reply.value;
  doorbell_ = std::move(fds[shm::kHelloDoorbellFd]);
  const int segment_fd = fds[shm::kHelloSegmentFd].get();
  SPCCL_RETURN_IF_ERROR(CheckSealedMemfd(segment_fd, sizeof(shm::Segment)).status());
  SPCCL_ASSIGN_OR_RETURN(segment_, SharedMapping::Create(segment_fd, sizeof(shm::Segment)));
  producer_.emplace(&segment()->submission_control, segment()->submissions,
                    shm::kSubmissionCapacity);
  consumer_.emplace(&segment()->completion_control, segment()->completions,
                    shm::kCompletionCapacity);
  return absl::OkStatus();
}

absl::StatusOr<std::string> RawClient::UniqueId() {
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, Call(Make(shm::RequestType::kUniqueId)));
  SPCCL_RETURN_IF_ERROR(ResultStatus(reply));
  return std::string(reinterpret_cast<const char*>(reply.payload), sizeof reply.payload);
}

shm::Request RawClient::MakeCommInit(const std::string& unique_id, uint32_t ranks, uint32_t rank,
                                     uint32_t deadline_ms) {
  shm::Request request = Make(shm::RequestType::kCommInit);
  std::memcpy(request.comm_init.unique_id, unique_id.data(), shm::kUniqueIdBytes);
  request.comm_init.ranks = ranks;
  request.comm_init.rank = rank;
  request.comm_init.deadline_ms = deadline_ms;
  return request;
}

absl::StatusOr<RawBuffer> RawClient::Allocate(size_t bytes) {
  SPCCL_ASSIGN_OR_RETURN(const UniqueFd memfd, CreateSealedMemfd("raw-client", bytes));
  RawBuffer buffer;
  SPCCL_ASSIGN_OR_RETURN(buffer.mapping, SharedMapping::Create(memfd.get(), bytes));
  shm::Request request = Make(shm::RequestType::kRegisterMemfd);
  request.buffer.address = reinterpret_cast<uint64_t>(buffer.mapping.data());
  request.buffer.size_bytes = bytes;
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply, Call(request, {memfd.get()}));
  SPCCL_RETURN_IF_ERROR(ResultStatus(reply));
  buffer.id = reply.value;
  return buffer;
}

absl::Status RawClient::HandOverMemory() {
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply,
                         Call(Make(shm::RequestType::kHandOverMemory), {memory.get(), maps.get()}));
  return ResultStatus(reply);
}

bool RawClient::Push(const shm::Submission& slot) {
  if (producer_->TryPush(slot) != shm::RingState::kReady) return false;
  if (producer_->NeedsWake()) Ring();
  return true;
}

void RawClient::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

std::optional<shm::Completion> RawClient::AwaitCompletion(int64_t timeout_ms) {
  const int64_t deadline_ns = DeadlineIn(timeout_ms);
  shm::Completion completion;
  while (consumer_->TryPop(&completion) != shm::RingState::kReady) {
    const int64_t left_ns = deadline_ns - MonotonicNanos();
    if (left_ns <= 0) return std::nullopt;
    // Sequentially consistent, as the ring wants it: our store before our last look at the tail.
    consumer_->sleepers()->store(1, std::memory_order_seq_cst);
    const uint32_t seen = consumer_->popped();
    if (consumer_->empty()) FutexWait(consumer_->futex(), seen, left_ns);
    consumer_->sleepers()->store(0, std::memory_order_relaxed);
  }
  return completion;
}

absl::StatusOr<std::vector<RawRank>> FormComm(const std::string& socket_path, uint32_t ranks) {
  std::vector<RawRank> members;
  std::vector<uint64_t> request_ids;
  std::string unique_id;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    SPCCL_ASSIGN_OR_RETURN(RawClient client, RawClient::Open(socket_path));
    if (rank == 0) {
      SPCCL_ASSIGN_OR_RETURN(unique_id, client.UniqueId());
    }
    const shm::Request request = client.MakeCommInit(unique_id, ranks, rank);
    SPCCL_RETURN_IF_ERROR(client.Send(request));
    request_ids.push_back(request.request_id);
    members.push_back(RawRank{.client = std::move(client)});
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    SPCCL_ASSIGN_OR_RETURN(const shm::Reply reply,
                           members[rank].client.AwaitReply(request_ids[rank]));
    SPCCL_RETURN_IF_ERROR(ResultStatus(reply));
    members[rank].handle = static_cast<uint32_t>(reply.value);
  }
  return members;
}

shm::Submission AllReduceSlot(RawRank& rank, const RawBuffer& buffer, uint64_t count,
                              uint64_t send_offset, uint64_t recv_offset) {
  shm::Submission slot{};
  slot.ticket = rank.client.next_ticket++;
  slot.comm_id = rank.handle;
  slot.op = static_cast<uint8_t>(OpKind::kAllReduce);
  slot.dtype = static_cast<uint8_t>(DType::kFloat32);
  slot.redop = static_cast<uint8_t>(RedOp::kSum);
  slot.sequence = rank.next_sequence++;
  slot.count = count;
  slot.send = {.buffer_id = buffer.id, .offset = send_offset};
  slot.recv = {.buffer_id = buffer.id, .offset = recv_offset};
  return slot;
}

}  // namespace spccl::testing
