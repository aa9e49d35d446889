// An all-reduce of buffers that only the ranks' own processes reach fast: each copies its slices
// into shared slots, and this task reduces them there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "collective/op.h"
#include "collective/runtime/slice_gate.h"
#include "collective/runtime/slice_relay.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

// Slices run in order, each when all ranks have handed it over; several threads run several slices
// at once. Where the next slice is missing one thread waits for it, not for long; then the task is
// idle until Nudge().
//
// OpStats stay zero: nothing is sent.
class RelayTask final : public Task {
 public:
  // `relays`: one a rank, at least one. op.kind is kAllReduce.
  RelayTask(const OpDesc& op, std::vector<std::shared_ptr<SliceRelay>> relays, DoneFn done);

  Progress RunOne(Scratch scratch) override;
  void Cancel(absl::Status reason, int culprit_rank) override;
  void Nudge() override { Wake(); }

 private:
  bool AllHere(uint64_t slice) const;
  bool AwaitAll(uint64_t slice, int64_t until_ns);
  bool AskForNudges(uint64_t slice);
  void RunSlice(uint64_t slice);
  void Finish();

  const OpDesc op_;
  // Shared: a thread may still look whether a slice has come when another ends the operation.
  const std::vector<std::shared_ptr<SliceRelay>> relays_;
  const uint64_t slice_elements_;
  SliceGate gate_;
  DoneFn done_;
  std::atomic<bool> is_awaited_{false};  // by one thread at a time; guards nothing: relaxed

  std::mutex mutex_;  // guards result_ until the gate's last end
  OpResult result_;
};

}  // namespace spccl::runtime
