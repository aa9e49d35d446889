#include "client/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "client/comm.h"
#include "client/error.h"
#include "client/relay.h"

namespace spccl::client {
namespace {

constexpr size_t kStagingAlign = 64;

}  // namespace

Operation::Operation(std::shared_ptr<Comm> comm, const CollectiveCall& call, const Footprint& bytes,
                     StagingPool* staging)
    : comm_(std::move(comm)), call_(call), bytes_(bytes), staging_(staging) {
  submission_.comm_id = comm_->id();
  submission_.op = static_cast<uint8_t>(call.op);
  submission_.dtype = static_cast<uint8_t>(call.dtype);
  submission_.redop = static_cast<uint8_t>(call.redop);
  submission_.count = call.count;
  submission_.root = static_cast<uint32_t>(call.root);
}

absl::StatusOr<std::shared_ptr<Operation>> Operation::Create(std::shared_ptr<Comm> comm,
                                                             const CollectiveCall& call,
                                                             const Footprint& bytes,
                                                             const MemoryTable& memory,
                                                             StagingPool* staging) {
  std::shared_ptr<Operation> op(new Operation(std::move(comm), call, bytes, staging));
  SPCCL_ASSIGN_OR_RETURN(op->submission_.send, op->Locate(memory, call.send, bytes.send_bytes,
                                                          &op->stage_send_, &op->send_region_));
  SPCCL_ASSIGN_OR_RETURN(op->submission_.recv, op->Locate(memory, call.recv, bytes.recv_bytes,
                                                          &op->stage_recv_, &op->recv_region_));
  // A buffer that is not looked at is named like the other one, so that it is valid too.
  if (bytes.send_bytes == 0) op->submission_.send = op->submission_.recv;
  op->relayed_ = op->WantsRelay();
  return op;
}

std::shared_ptr<Operation> Operation::CreateOnGpu(std::shared_ptr<Comm> comm,
                                                  const CollectiveCall& call,
                                                  const Footprint& bytes, const GpuMemory& memory,
                                                  std::shared_ptr<GpuPart> part) {
  std::shared_ptr<Operation> op(new Operation(std::move(comm), call, bytes, nullptr));
  op->submission_.send = bytes.send_bytes == 0 ? memory.recv : memory.send;
  op->submission_.recv = memory.recv;
  op->submission_.order_slot = memory.order_slot;
  op->submission_.order_value = memory.order_value;
  op->gpu_part_ = std::move(part);
  return op;
}

bool Operation::WantsRelay() const {
  if (call_.op != OpCode::kAllReduce || stage_send_ || stage_recv_) return false;
  const auto is_shared = [](const std::shared_ptr<Region>& region) {
    return region != nullptr && region->is_allocated();
  };
  return !is_shared(send_region_) && !is_shared(recv_region_) &&
         bytes_.send_bytes >= comm_->session()->least_relay_bytes();
}

Operation::~Operation() {
  if (!is_finished()) ReleaseMemory();
}

// Lets go of it, too: the operation may be kept for a while after its end, memory that is freed
// meanwhile must not be.
void Operation::ReleaseMemory() {
  for (std::shared_ptr<Region>* each : {&send_region_, &recv_region_}) {
    const std::shared_ptr<Region> region = std::move(*each);
    if (region != nullptr) region->RemoveUse();
  }
}

absl::StatusOr<shm::BufferRef> Operation::Locate(const MemoryTable& memory, const void* data,
                                                 size_t bytes, bool* stage,
                                                 std::shared_ptr<Region>* region) {
  if (bytes == 0) return shm::BufferRef{};
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> found, memory.Find(data, bytes));
  const std::shared_ptr<Session>& session = comm_->session();
  if (found == nullptr || !(found->is_allocated() || session->can_attach())) {
    *stage = !session->can_attach();
    return shm::BufferRef{.buffer_id = shm::kRawAddress, .offset = AddressOf(data)};
  }
  SPCCL_ASSIGN_OR_RETURN(const uint64_t id, found->BufferId(session));
  const uint64_t offset = AddressOf(data) - AddressOf(found->data());
  found->AddUse();
  *region = std::move(found);
  return shm::BufferRef{.buffer_id = id, .offset = offset};
}

absl::StatusOr<Rings::Push> Operation::TrySubmit(uint32_t* seen) {
  SPCCL_RETURN_IF_ERROR(comm_->Health());
  Rings& rings = comm_->session()->rings();
  if (!comm_->HasRoom(submission_.sequence)) {
    rings.Drain();
    // Before the second look: completions that come after this end the wait for progress.
    *seen = rings.Seen();
    if (!comm_->HasRoom(submission_.sequence)) return Rings::Push::kNoRoom;
  }
  return rings.Submit(shared_from_this(), submission_, seen);
}

bool Operation::SubmitIfRoom() noexcept {
  uint32_t seen;
  const auto push = CatchAll([&] { return TrySubmit(&seen); });
  if (!push.ok()) {
    Fail(push.status());
    return true;
  }
  if (*push == Rings::Push::kNoRoom) return false;
  submitted_.store(true, std::memory_order_release);
  return true;
}

void Operation::SubmitWhenRoom() noexcept {
  const absl::Status pushed = CatchAll([this]() -> absl::Status {
    for (;;) {
      uint32_t seen;
      SPCCL_ASSIGN_OR_RETURN(const Rings::Push push, TrySubmit(&seen));
      if (push == Rings::Push::kPushed) return absl::OkStatus();
      comm_->session()->rings().WaitForProgress(seen);
    }
  });
  if (!pushed.ok()) return Fail(pushed);
  submitted_.store(true, std::memory_order_release);
}

absl::StatusOr<std::shared_ptr<Region>> Operation::CopyIn() {
  const uintptr_t send = AddressOf(call_.send), recv = AddressOf(call_.recv);
  const size_t send_bytes = stage_send_ ? bytes_.send_bytes : 0;
  const size_t recv_bytes = stage_recv_ ? bytes_.recv_bytes : 0;
  size_t send_offset = 0, total;
  if (send_bytes > 0 && recv_bytes > 0 && send < recv + recv_bytes && recv < send + send_bytes) {
    // In place stays in place: one image of the bytes that the two cover.
    const uintptr_t first = std::min(send, recv);
    send_offset = send - first;
    recv_offset_ = recv - first;
    total = std::max(send + send_bytes, recv + recv_bytes) - first;
  } else {
    recv_offset_ = (send_bytes + kStagingAlign - 1) / kStagingAlign * kStagingAlign;
    total = recv_offset_ + recv_bytes;
  }
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> buffer, staging_->Take(total));
  SPCCL_ASSIGN_OR_RETURN(const uint64_t id, buffer->BufferId(comm_->session()));
  if (stage_send_) {
    std::memcpy(buffer->data() + send_offset, call_.send, send_bytes);
    submission_.send = {.buffer_id = id, .offset = send_offset};
  }
  if (stage_recv_) submission_.recv = {.buffer_id = id, .offset = recv_offset_};
  if (bytes_.send_bytes == 0) submission_.send = submission_.recv;
  return buffer;
}

absl::Status Operation::RunRelayed() {
  Relay* const relay = comm_->relay();
  submission_.relay = relay == nullptr ? 0 : 1;
  SubmitWhenRoom();
  if (is_finished()) return absl::OkStatus();
  auto end = Relay::End::kElsewhere;
  if (relay != nullptr) {
    end = relay->Exchange({.sequence = submission_.sequence,
                           .send = call_.send,
                           .recv = call_.recv,
                           .bytes = bytes_.recv_bytes,
                           .dtype = static_cast<DType>(call_.dtype),
                           .redop = static_cast<RedOp>(call_.redop)},
                          {.has_ended = [this] { return WaitSubmitted(/*deadline_ns=*/0); },
                           .tell_daemon = [this] { comm_->session()->rings().RingDoorbell(); }});
  }
  WaitSubmitted(/*deadline_ns=*/-1);
  if (result_.ok() && end == Relay::End::kCutShort) {
    result_ = absl::InternalError("the operation ended before this rank had its results");
  }
  Finish(std::move(result_), /*by_daemon=*/true);
  return absl::OkStatus();
}

absl::Status Operation::RunCopied() {
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> buffer, CopyIn());
  SubmitWhenRoom();
  if (is_finished()) {
    staging_->GiveBack(std::move(buffer));
    return absl::OkStatus();
  }
  WaitSubmitted(/*deadline_ns=*/-1);
  // After an error the daemon may not have let go of the buffer: it is not used again.
  if (result_.ok()) {
    if (stage_recv_) {
      std::memcpy(call_.recv, buffer->data() + recv_offset_, bytes_.recv_bytes);
    }
    staging_->GiveBack(std::move(buffer));
  }
  Finish(std::move(result_), /*by_daemon=*/true);
  return absl::OkStatus();
}

void Operation::RunStaged() noexcept {
  const absl::Status status = CatchAll([this] { return relayed_ ? RunRelayed() : RunCopied(); });
  if (status.ok() || is_finished()) return;
  if (!is_submitted()) return Fail(status);
  // The other ranks may wait for what this one was to do: they must not, and the daemon lets go of
  // the memory.
  comm_->Break(status);
  WaitSubmitted(/*deadline_ns=*/-1);
  Finish(status, /*by_daemon=*/true);
}

void Operation::Fail(const absl::Status& status) noexcept {
  comm_->Break(status);
  comm_->NoteCompleted();
  Finish(status, /*by_daemon=*/false);
}

bool Operation::Poll() {
  if (!is_finished() && is_submitted()) comm_->session()->rings().Drain();
  return is_finished();
}

bool Operation::WaitSubmitted(int64_t deadline_ns) {
  return comm_->session()->rings().Wait(*this, deadline_ns);
}

void Operation::OnDone(absl::Status result, bool by_daemon) {
  comm_->NoteCompleted();
  result = comm_->ResultOf(std::move(result));
  if (is_staged()) {
    result_ = std::move(result);  // RunStaged finishes it
  } else {
    Finish(std::move(result), by_daemon);
  }
}

void Operation::Finish(absl::Status result, bool by_daemon) {
  result_ = std::move(result);
  ReleaseMemory();
  // Where nobody waits for its result the communicator's health tells of it.
  if (!result_.ok() && (gpu_part_ != nullptr || is_detached_)) comm_->NoteAsyncError(result_);
  if (gpu_part_ != nullptr) std::exchange(gpu_part_, nullptr)->End(result_, by_daemon);
  // Release: whoever sees it finished sees the result and what was done to the memory.
  finished_.store(true, std::memory_order_release);
}

}  // namespace spccl::client
