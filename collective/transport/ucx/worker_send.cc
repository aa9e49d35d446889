// Worker's way out: see worker.cc for what comes in.
#include <algorithm>
#include <utility>

#include "collective/transport/ucx/worker.h"

namespace spccl::transport::ucx {

void Worker::Send(std::shared_ptr<Endpoint> endpoint, const Message& message, Frame frame) {
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back({message, std::move(frame), std::move(endpoint)});
  }
  Kick();
}

// Sends what is queued, unless another thread holds the worker: whoever does looks at the queue
// once more after letting go.
void Worker::Kick() {
  for (;;) {
    bool wake;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) return;
      TakeWorkLocked();
      // What is not done yet goes on when the own thread looks. Relaxed: both under mutex_.
      wake = asleep_.load(std::memory_order_relaxed) && (!sending_.empty() || !events_.empty());
      if (wake) asleep_.store(false, std::memory_order_relaxed);
    }
    if (wake) ucp_worker_signal(worker_);
    const std::lock_guard lock(queue_mutex_);
    if (queue_.empty()) return;
  }
}

bool Worker::TakeWorkLocked() {
  std::deque<Queued> work;
  {
    const std::lock_guard lock(queue_mutex_);
    work.swap(queue_);
  }
  for (Queued& queued : work) SendLocked(std::move(queued));
  return !work.empty();
}

// In parts, where UCX would cut the frame up too: it copies what it puts together once more, and
// allocates memory for that.
void Worker::SendLocked(Queued queued) {
  const uint64_t bytes = queued.frame.size_bytes();
  if (!queued.endpoint->eager || bytes <= kPartBytes) {
    return PutLocked(queued.endpoint, queued.message, std::move(queued.frame), 0, bytes);
  }
  Message message = queued.message;
  message.part_of = next_part_of_++;
  for (uint64_t offset = 0; offset < bytes; offset += kPartBytes) {
    message.part_offset = offset;
    PutLocked(queued.endpoint, message, queued.frame.Share(), offset,
              std::min(kPartBytes, bytes - offset));
  }
}

void Worker::PutLocked(const std::shared_ptr<Endpoint>& endpoint, const Message& message,
                       Frame frame, uint64_t offset, uint64_t bytes) {
  if (endpoint->handle == nullptr) return;  // closed meanwhile
  auto sending = std::make_unique<Sending>(
      Sending{FormatMessage(message), std::move(frame), bytes, endpoint, this});
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  if (endpoint->eager) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
  }
  param.cb.send = OnSent;
  param.user_data = sending.get();
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const std::byte* const data = bytes == 0 ? nullptr : sending->frame.data() + offset;
  void* const request = ucp_am_send_nbx(endpoint->handle, kActiveMessageId, sending->header.data(),
                                        sending->header.size(), data, bytes, &param);
  if (UCS_PTR_IS_ERR(request)) {
    FailLocked(endpoint->link, UcxStatus(UCS_PTR_STATUS(request), "sending"));
  } else if (request != nullptr) {
    sending_.insert(sending.release());
  } else {
    SentLocked(*sending);
  }
}

void Worker::SentLocked(const Sending& sending) {
  if (!sending.endpoint->window->Remove(sending.bytes)) return;
  Event event{.kind = Event::Kind::kRoom};
  event.message.token = sending.endpoint->link;
  events_.push_back(std::move(event));
}

void Worker::OnSent(void* request, ucs_status_t status, void* sending) {
  const std::unique_ptr<Sending> owner(static_cast<Sending*>(sending));
  owner->worker->sending_.erase(owner.get());
  if (status != UCS_OK && owner->endpoint->handle != nullptr) {
    owner->worker->FailLocked(owner->endpoint->link, UcxStatus(status, "sending"));
  }
  owner->worker->SentLocked(*owner);
  ucp_request_free(request);
}

}  // namespace spccl::transport::ucx
