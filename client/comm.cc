#include "client/comm.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/error.h"

namespace spccl::client {
namespace {

// For operations to end after an abort; the daemon needs as long as its slowest slice.
constexpr int64_t kAbortTimeoutNs = 10'000'000'000;

// How long after a failure operations may take to end without it.
constexpr int64_t kFailureGraceNs = 100'000'000;

constexpr char kClosing[] = "the communicator is being destroyed";

}  // namespace

Comm::Comm(std::shared_ptr<Session> session, uint32_t id, int rank, int ranks)
    : session_(std::move(session)),
      id_(id),
      rank_(rank),
      ranks_(ranks),
      null_stream_(std::make_shared<Stream>()) {
  session_->AddComm();
}

Relay* Comm::relay() {
  std::call_once(relay_asked_, [this] {
    auto relay = CatchAll([this] {
      return Relay::Open(*session_, id_, static_cast<uint32_t>(rank_),
                         static_cast<uint32_t>(ranks_));
    });
    // Else operations run without: over several nodes, or where there is no memory for more.
    if (relay.ok()) relay_ = *std::move(relay);
  });
  return relay_.get();
}

absl::Status Comm::Health() const {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return broken_;
    if (!async_error_.ok()) return async_error_;
  }
  return session_->CommHealth(id_);
}

absl::Status Comm::Accepts() const {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return absl::FailedPreconditionError(kClosing);
  }
  return Health();
}

absl::Status Comm::Issue(const std::shared_ptr<Operation>& op, std::weak_ptr<Stream> stream) {
  const std::lock_guard lock(mutex_);
  if (closing_) return absl::FailedPreconditionError(kClosing);
  while (!issued_.empty() && issued_.front().op->is_finished()) issued_.pop_front();
  issued_.push_back({op, std::move(stream)});
  // Last: a place that no operation has would hold up all later ones.
  op->set_sequence(next_sequence_++);
  return absl::OkStatus();
}

bool Comm::HasRoom(uint64_t sequence) const {
  return sequence < completed_.load(std::memory_order_acquire) + session_->Window();
}

absl::Status Comm::ResultOf(absl::Status result) const {
  return result.ok() || !aborted_.load(std::memory_order_acquire) ? result : aborted_here_;
}

void Comm::NoteAsyncError(const absl::Status& error) {
  const std::lock_guard lock(mutex_);
  if (async_error_.ok()) async_error_ = error;
}

void Comm::Break(const absl::Status& reason) noexcept {
  if (!session_->CommHealth(id_).ok()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = reason;
    broke_ = true;
  }
  shm::Request request{};
  request.type = shm::RequestType::kCommAbort;
  request.comm.comm_id = id_;
  const auto asked = CatchAll([&] { return session_->Ask(request, "failing a communicator"); });
  // Where it may not have been sent: what is not waited for takes no memory.
  if (absl::IsResourceExhausted(asked.status())) session_->Tell(request);
}

// Those that wait behind operations of other communicators would not end by themselves.
void Comm::CancelQueued() {
  std::deque<Issued> issued;
  absl::Status reason;
  {
    const std::lock_guard lock(mutex_);
    issued = issued_;
    reason = broken_;
  }
  for (const Issued& each : issued) {
    if (const auto stream = each.stream.lock()) stream->Cancel(*this, reason);
  }
}

bool Comm::Flush(int64_t deadline_ns) {
  for (;;) {
    Issued oldest;
    {
      const std::lock_guard lock(mutex_);
      while (!issued_.empty() && issued_.front().op->is_finished()) issued_.pop_front();
      if (issued_.empty()) return true;
      oldest = issued_.front();
    }
    // A stream that has gone has ended its operations first.
    const auto stream = oldest.stream.lock();
    if (stream != nullptr && !stream->Wait(*oldest.op, deadline_ns)) return false;
  }
}

absl::Status Comm::Leave(shm::RequestType how) {
  bool broke;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(left_, true)) return absl::OkStatus();
    broke = broke_;
  }
  session_->RemoveComm();
  shm::Request request{};
  request.type = how;
  request.comm.comm_id = id_;
  absl::StatusOr<shm::Reply> reply = absl::UnknownError("");
  try {
    reply = session_->Ask(request, "leaving a communicator");
  } catch (const std::bad_alloc&) {
    // It may not have been sent: the caller can try again.
    const std::lock_guard lock(mutex_);
    session_->AddComm();
    left_ = false;
    throw;
  }
  session_->ForgetComm(id_);
  // With the session everything in the daemon has gone that could be left; where it has gone just
  // now, only the request may have met that yet.
  bool gone = !session_->Health().ok() || absl::IsUnavailable(reply.status());
  // Who breaks it leaves it, too: then the daemon knows of none to leave.
  gone = gone || (broke && absl::IsFailedPrecondition(reply.status()));
  return gone ? absl::OkStatus() : reply.status();
}

absl::Status Comm::Destroy() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  // What others were to call, and will not after a failure, would not end by itself.
  while (!Flush(MonotonicNanos() + kFailureGraceNs)) {
    if (const absl::Status health = Health(); !health.ok()) Break(health);
  }
  null_stream_->Shutdown();
  const bool failed = !Health().ok();
  const absl::Status status = Leave(shm::RequestType::kCommDestroy);
  return failed ? absl::OkStatus() : status;
}

absl::Status Comm::Abort() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (broken_.ok()) broken_ = aborted_here_;
  }
  aborted_.store(true, std::memory_order_release);
  SPCCL_RETURN_IF_ERROR(Leave(shm::RequestType::kCommAbort));
  CancelQueued();
  if (!Flush(MonotonicNanos() + kAbortTimeoutNs)) {
    return absl::InternalError(
        "the daemon has not ended the communicator's operations; their buffers may still be used");
  }
  null_stream_->Shutdown();
  return absl::OkStatus();
}

absl::Status Comm::SetCodec(const CodecWish& wish) {
  SPCCL_RETURN_IF_ERROR(Accepts());
  shm::Request request{};
  request.type = shm::RequestType::kCommCodec;
  request.comm_codec.comm_id = id_;
  shm::SetText(request.comm_codec.codec, wish.codec);
  shm::SetText(request.comm_codec.lossy, wish.lossy);
  SPCCL_RETURN_IF_ERROR(session_->Ask(request, "setting a communicator's codec").status());
  is_lossy_.store(wish.is_lossy, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Region>> Comm::Register(MemoryTable* memory, void* data,
                                                       size_t bytes) {
  SPCCL_RETURN_IF_ERROR(Accepts());
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<Region> region, memory->Register(data, bytes));
  const absl::Status kept = CatchAll([&]() -> absl::Status {
    if (region->is_allocated() || session_->can_attach()) {
      SPCCL_RETURN_IF_ERROR(region->BufferId(session_).status());
    }
    const std::lock_guard lock(mutex_);
    registrations_.push_back(region);
    return absl::OkStatus();
  });
  if (kept.ok()) return region;
  (void)memory->Deregister(region);
  return kept;
}

absl::Status Comm::Deregister(MemoryTable* memory, const std::shared_ptr<Region>& region) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(registrations_.begin(), registrations_.end(), region);
  if (found == registrations_.end()) {
    return absl::FailedPreconditionError("the registration is not one of this communicator");
  }
  SPCCL_RETURN_IF_ERROR(memory->Deregister(region));
  registrations_.erase(found);
  return absl::OkStatus();
}

void Comm::DeregisterAll(MemoryTable* memory) {
  std::vector<std::shared_ptr<Region>> registrations;
  {
    const std::lock_guard lock(mutex_);
    registrations.swap(registrations_);
  }
  for (const auto& region : registrations) (void)memory->Deregister(region);
}

void Comm::SetLastError(absl::string_view text, const char* function) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    last_error_ = function == nullptr ? std::string(text) : absl::StrCat(function, ": ", text);
  } catch (const std::bad_alloc&) {
    last_error_ = "out of memory";  // so short that it takes none
  }
}

std::string Comm::LastError() const {
  {
    const std::lock_guard lock(mutex_);
    if (!last_error_.empty()) return last_error_;
  }
  return std::string(Health().message());
}

}  // namespace spccl::client
