#include "collective/runtime/host/relay_task.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {
namespace {

// How long a thread stays with the task before others get their turn, waiting included: some slices
// of the local plan. A wait costs nobody but this thread, and saves two others from being woken for
// each slice.
constexpr int64_t kTurnNs = 500'000;

// So many slices are there beyond the one that a thread runs when it has another one woken.
constexpr uint64_t kBacklog = 3;

}  // namespace

RelayTask::RelayTask(const OpDesc& op, std::vector<std::shared_ptr<SliceRelay>> relays, DoneFn done)
    : op_(op),
      relays_(std::move(relays)),
      slice_elements_(relays_.front()->slot_bytes() / SizeOf(op.dtype)),
      // An empty operation has one empty slice, so that somebody ends it.
      gate_(std::max<uint64_t>(1, (op.count + slice_elements_ - 1) / slice_elements_)),
      done_(std::move(done)) {
  SPCCL_CHECK(op.kind == OpKind::kAllReduce);
}

Progress RelayTask::RunOne(Scratch) {
  const int64_t until_ns = MonotonicNanos() + kTurnNs;
  for (;;) {
    const uint64_t slice = gate_.next();
    if (slice >= gate_.total()) return Progress::kDone;
    if (AllHere(slice)) {
      if (!gate_.TryClaim(slice)) continue;
      const bool last_claim = slice + 1 == gate_.total();
      // The ranks are ahead of us: there is work for another thread.
      if (slice + kBacklog < gate_.total() && AllHere(slice + kBacklog)) Wake();
      RunSlice(slice);
      if (last_claim) Wake();  // those who were idle learn that nothing is left
      if (gate_.Complete()) Finish();
      if (last_claim) return Progress::kDone;
      if (MonotonicNanos() < until_ns) continue;
      Wake();  // another thread may have found the task idle while this one waited
      return Progress::kRan;
    }
    // One thread waits for all; what it then finds it runs, or has others woken for.
    if (is_awaited_.exchange(true, std::memory_order_relaxed)) return Progress::kIdle;
    const bool came = AwaitAll(slice, until_ns);
    is_awaited_.store(false, std::memory_order_relaxed);
    if (!came && gate_.next() == slice && !AskForNudges(slice)) return Progress::kIdle;
  }
}

bool RelayTask::AllHere(uint64_t slice) const {
  if (op_.count == 0) return true;
  return std::all_of(relays_.begin(), relays_.end(),
                     [slice](const auto& relay) { return relay->IsHere(slice); });
}

bool RelayTask::AwaitAll(uint64_t slice, int64_t until_ns) {
  return std::all_of(relays_.begin(), relays_.end(), [slice, until_ns](const auto& relay) {
    return relay->IsHere(slice) || relay->Await(slice, until_ns);
  });
}

bool RelayTask::AskForNudges(uint64_t slice) {
  return std::all_of(relays_.begin(), relays_.end(), [slice](const auto& relay) {
    return relay->IsHere(slice) || relay->AskForNudge(slice);
  });
}

void RelayTask::RunSlice(uint64_t slice) {
  const uint64_t first = slice * slice_elements_;
  const uint64_t elements = std::min(slice_elements_, op_.count - first);
  absl::InlinedVector<void*, 8> slots;
  for (const auto& relay : relays_) slots.push_back(relay->Slot(slice));
  const absl::InlinedVector<const void*, 8> inputs(slots.begin(), slots.end());
  // Through the caches: the ranks read it at once.
  Reduce(op_.dtype, op_.redop, inputs, slots, elements, /*streaming=*/false);
  for (const auto& relay : relays_) relay->HandBack(slice);
}

void RelayTask::Cancel(absl::Status reason, int culprit_rank) {
  {
    const std::lock_guard lock(mutex_);
    if (result_.status.ok()) {  // the first reason counts
      result_.status = std::move(reason);
      result_.culprit_rank = culprit_rank;
    }
  }
  if (gate_.Close()) Finish();
}

void RelayTask::Finish() {
  OpResult result;
  {
    const std::lock_guard lock(mutex_);
    result = result_;
  }
  const DoneFn done = std::move(done_);
  done(result);
}

}  // namespace spccl::runtime
