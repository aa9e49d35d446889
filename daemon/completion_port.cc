#include "daemon/completion_port.h"

#include <utility>

#include "base/futex.h"
#include "proto/shm/result.h"
#include "proto/shm/session.h"

namespace spccl::daemon {

CompletionPort::CompletionPort(MappingRef segment)
    : mapping_(std::move(segment)),
      segment_(reinterpret_cast<shm::Segment*>(mapping_->data())),
      producer_(&segment_->completion_control, segment_->completions, shm::kCompletionCapacity) {}

bool CompletionPort::Admit() {
  std::lock_guard lock(mutex_);
  // Acquire: the client's copy of a slot that it has reaped is complete before we reuse the slot.
  const uint32_t head = segment_->completion_control.head.load(std::memory_order_acquire);
  const uint32_t unread = producer_.pushed() - head;
  if (unread > shm::kCompletionCapacity || unread + in_flight_ >= shm::kCompletionCapacity) {
    return false;
  }
  ++in_flight_;
  return true;
}

bool CompletionPort::Complete(uint64_t ticket, uint32_t handle, const absl::Status& status) {
  shm::Completion completion{};
  completion.ticket = ticket;
  completion.result = static_cast<uint32_t>(shm::ResultOf(status));
  completion.comm_id = handle;
  shm::SetText(completion.message,
               std::string_view(status.message().data(), status.message().size()));
  std::lock_guard lock(mutex_);
  --in_flight_;
  if (closed_) return true;
  if (producer_.TryPush(completion) != shm::RingState::kReady) return false;
  if (producer_.NeedsWake()) FutexWakeAll(producer_.futex());
  return true;
}

void CompletionPort::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace spccl::daemon
