// An all-reduce that the ranks' processes run among themselves, through relays; this only begins it
// and waits for its end.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "collective/runtime/rank_relay.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

// Idle until Nudge(). OpStats stay zero: nothing is sent.
class RelayTask final : public Task {
 public:
  // `relays`: one a rank, at least one.
  RelayTask(std::vector<std::shared_ptr<RankRelay>> relays, DoneFn done);

  Progress RunOne(Scratch scratch) override;
  void Cancel(absl::Status reason, int culprit_rank) override;
  void Nudge() override { Wake(); }
  TaskLook Look() override;

 private:
  // True once: the caller is the one to tell the end.
  bool End() { return !ended_.exchange(true, std::memory_order_acq_rel); }
  void Finish(const OpResult& result);

  // Shared: a thread may still look at them when another ends the operation.
  const std::vector<std::shared_ptr<RankRelay>> relays_;
  std::atomic<bool> ended_{false};
  DoneFn done_;
};

}  // namespace spccl::runtime
