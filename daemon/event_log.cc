#include "daemon/event_log.h"

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
  if (from_sequence > 0) {
    for (const EventPtr& event : kept_) {
      if (event->sequence >= from_sequence && !subscriber->Deliver(event)) return;
    }
  }
  subscribers_.push_back(std::move(subscriber));
}

}  // namespace spccl::daemon
