#include "daemon/control_service_event_queue.h"

#include <chrono>
#include <utility>

namespace spccl::daemon {
namespace {

// About what the event keeps in memory.
size_t BytesOf(const Event& event) {
  size_t bytes = sizeof event + event.kind.size() + event.job_id.size() + event.message.size();
  if (event.sends != nullptr) {
    const SendsInfo& sends = *event.sends;
    bytes += sizeof sends + sends.steps.size() * sizeof(sends.steps[0]);
  }
  return bytes;
}

}  // namespace

void EventQueue::Push(const EventPtr& event) {
  const std::lock_guard lock(mutex_);
  if (next_ != 0 && event->sequence > next_) lost_ += event->sequence - next_;
  next_ = event->sequence + 1;
  if (!MaySee(caller_, event->uid)) return;
  const size_t bytes = BytesOf(*event);
  if (entries_.size() == kMostEvents || bytes > kMostBytes - bytes_) {
    ++lost_;
    return;
  }
  bytes_ += bytes;
  entries_.push_back({.lost = std::exchange(lost_, 0), .event = event});
  pushed_.notify_one();
}

bool EventQueue::Pop(int64_t wait_ns, Entry* entry) {
  std::unique_lock lock(mutex_);
  if (!pushed_.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                        [this] { return !entries_.empty(); })) {
    return false;
  }
  *entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= BytesOf(*entry->event);
  return true;
}

}  // namespace spccl::daemon
