#include "daemon/event_log.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace spccl::daemon {

void EventLog::Record(Event event) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  event.sequence = next_sequence_++;
  ++counts_[event.kind];
  event.unix_nanos = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  kept_.push_back(std::make_shared<const Event>(std::move(event)));
  std::erase_if(subscribers_,
                [this](const auto& subscriber) { return !subscriber->Deliver(kept_.back()); });
  if (kept_.size() > kKept) kept_.pop_front();
}

void EventLog::Add(std::shared_ptr<Subscriber> subscriber, uint64_t from_sequence) {
  if (subscribers_.size() >= sweep_at_) {
    std::erase_if(subscribers_, [](const auto& other) { return other->cancelled(); });
    sweep_at_ = std::max(kLeastSweep, 2 * subscribers_.size());
  }
  if (from_sequence > 0) {
    for (const EventPtr& event : kept_) {
      if (event->sequence >= from_sequence && !subscriber->Deliver(event)) return;
    }
  }
  if (!subscriber->cancelled()) subscribers_.push_back(std::move(subscriber));
}

}  // namespace spccl::daemon
