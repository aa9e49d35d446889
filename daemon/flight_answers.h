// What the daemons of a communicator's other nodes answer when they are asked for their records:
// between the core thread, which hears them, and whoever waits for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/nodes.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::daemon {

// Thread-safe.
class FlightAnswers {
 public:
  struct Answered {
    int place;  // of the node in the asker's record
    v1::FlightRecord record;
  };

  // Its answer is waited for.
  void Ask(NodeId node, int place) {
    const std::lock_guard lock(mutex_);
    answers_.try_emplace(node, Asked{.place = place, .record = {}});
  }
  // Only what was asked for, and only once.
  void Answer(NodeId node, v1::FlightRecord record) {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(node);
    if (found == answers_.end() || found->second.record) return;
    found->second.record = std::move(record);
    changed_.notify_all();
  }
  // Blocks until all have answered, or for so long; what has come.
  std::vector<Answered> Await(int64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return Complete(); });
    std::vector<Answered> answered;
    for (auto& [node, asked] : answers_) {
      if (asked.record) answered.push_back({asked.place, *asked.record});
    }
    return answered;
  }

 private:
  struct Asked {
    int place;
    std::optional<v1::FlightRecord> record;
  };
  bool Complete() const {
    for (const auto& [node, asked] : answers_) {
      if (!asked.record) return false;
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<NodeId, Asked> answers_;
};

}  // namespace spccl::daemon
