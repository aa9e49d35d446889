// What one caller's stream of events has not told yet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "daemon/control.h"
#include "daemon/control_service_access.h"

namespace spccl::daemon {

// Between the core's thread, which must not wait, and the thread of the stream. What does not fit,
// because the stream's reader is too slow, is lost and counted.
class EventQueue {
 public:
  // For each stream: those that began at different times keep different events. All that the log
  // keeps fit, and it shares them: 1,024 of at most some 32 KiB.
  static constexpr size_t kMostEvents = 4096, kMostBytes = size_t{64} << 20;

  // With from_sequence > 0, whatever is missing from there on is counted as lost too.
  EventQueue(const Caller& caller, uint64_t from_sequence)
      : caller_(caller), next_(from_sequence) {}

  void Push(const EventPtr& event);

  struct Entry {
    uint64_t lost;  // before the event
    EventPtr event;
  };
  // False: nothing came within `wait_ns`.
  bool Pop(int64_t wait_ns, Entry* entry);

 private:
  const Caller caller_;
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<Entry> entries_;
  size_t bytes_ = 0;  // of the entries
  uint64_t next_;     // the sequence that should come; 0: any
  uint64_t lost_ = 0;
};

}  // namespace spccl::daemon
