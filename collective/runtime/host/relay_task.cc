#include "collective/runtime/host/relay_task.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace spccl::runtime {

RelayTask::RelayTask(std::vector<std::shared_ptr<RankRelay>> relays, DoneFn done)
    : relays_(std::move(relays)), done_(std::move(done)) {
  SPCCL_CHECK(!relays_.empty());
  for (const auto& relay : relays_) relay->Begin();
}

Progress RelayTask::RunOne(Scratch) {
  if (ended_.load(std::memory_order_acquire)) return Progress::kDone;
  const bool all_done = std::all_of(relays_.begin(), relays_.end(),
                                    [](const auto& relay) { return relay->IsDone(); });
  if (!all_done) return Progress::kIdle;
  if (End()) Finish({});
  return Progress::kDone;
}

TaskLook RelayTask::Look() {
  TaskLook look;
  look.total = relays_.size();
  for (uint32_t rank = 0; rank < relays_.size(); ++rank) {
    if (relays_[rank]->IsDone()) {
      ++look.taken;
    } else {
      look.lines.push_back(
          {.doing = TaskLook::Doing::kWaitsForSlice, .rank = rank, .step = "reduce", .count = 1});
    }
  }
  look.progress = look.taken;
  return look;
}

void RelayTask::Cancel(absl::Status reason, int culprit_rank) {
  if (End()) Finish({.status = std::move(reason), .culprit_rank = culprit_rank, .stats = {}});
}

void RelayTask::Finish(const OpResult& result) {
  const DoneFn done = std::move(done_);
  done(result);
}

}  // namespace spccl::runtime
