// What happened, for those who follow: the last events kept in a bounded ring, and the subscribers.
// Core thread, except that a Subscription may be dropped on any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/control.h"

namespace spccl::daemon {

// One subscriber. Shared by the log and by the Subscription that its owner holds.
class Subscriber {
 public:
  explicit Subscriber(OnEvent on_event) : on_event_(std::move(on_event)) {}
  // False once Cancel() was called.
  bool Deliver(const EventPtr& event) {
    std::lock_guard lock(mutex_);
    if (on_event_) on_event_(event);
    return on_event_ != nullptr;
  }
  // Waits for a delivery that is under way; none comes after.
  void Cancel() {
    std::lock_guard lock(mutex_);
    on_event_ = nullptr;
  }

  bool cancelled() {
    std::lock_guard lock(mutex_);
    return on_event_ == nullptr;
  }

 private:
  std::mutex mutex_;
  OnEvent on_event_;
};

class EventLog {
 public:
  static constexpr size_t kKept = 1024;
  static constexpr size_t kLeastSweep = 16;

  // Numbers the event, stamps it, keeps it and tells every subscriber.
  void Record(Event event);
  // With from_sequence > 0 first delivers what is still kept from there on.
  void Add(std::shared_ptr<Subscriber> subscriber, uint64_t from_sequence);
  // Those held: at most twice as many as were not cancelled at one time, or kLeastSweep.
  size_t subscribers() const { return subscribers_.size(); }
  // How many there have been of each kind; kinds are words of this program, so they are few.
  const std::map<std::string, uint64_t>& counts() const { return counts_; }

 private:
  uint64_t next_sequence_ = 1;
  std::deque<EventPtr> kept_;
  std::map<std::string, uint64_t> counts_;
  std::vector<std::shared_ptr<Subscriber>> subscribers_;
  size_t sweep_at_ = kLeastSweep;  // with so many, those that were cancelled are dropped first
};

}  // namespace spccl::daemon
