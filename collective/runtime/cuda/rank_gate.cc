#include "collective/runtime/cuda/rank_gate.h"

#include <utility>

#include "base/status.h"

namespace spccl::runtime {
namespace {

// Acquire: what the rank's stream did before it wrote the word comes before what follows here.
bool Reached(const GpuOrder& order, uint32_t now) {
  return order.resets ? now == order.value : static_cast<int32_t>(now - order.value) >= 0;
}
bool Reached(const GpuOrder& order) {
  return Reached(order, order.ready->load(std::memory_order_acquire));
}

// For a rank that does not come. What its stream writes just now stays.
void LetThrough(const GpuOrder& order) {
  const uint32_t value = order.resets ? order.value : order.value + kReadyByCpu;
  uint32_t now = order.ready->load(std::memory_order_acquire);
  while (!Reached(order, now) &&
         !order.ready->compare_exchange_weak(now, value, std::memory_order_acq_rel)) {
  }
}

}  // namespace

RankGate::RankGate(Gpus& gpus, std::vector<Gpu*> rails, std::span<const RankBuffers> local)
    : gpus_(gpus), rails_(std::move(rails)) {
  SPCCL_CHECK(!rails_.empty());
  for (const RankBuffers& rank : local) {
    if (rank.order != nullptr) orders_.push_back(rank.order);
  }
}

void RankGate::Wait(std::function<void(absl::Status)> begun) {
  WaitForRanks(shared_from_this(), std::move(begun));
}

bool RankGate::IsReady() const {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return true;
  for (const auto& order : orders_) {
    if (!Reached(*order)) return false;
  }
  return true;
}

absl::Status RankGate::EnqueueWaits(cuda::Stream stream) const {
  const std::lock_guard lock(mutex_);
  const cuda::Driver& driver = *gpus_.driver();
  for (const auto& order : orders_) {
    if (Reached(*order)) continue;
    const unsigned how = order->resets ? cuda::kStreamWaitValueEq : cuda::kStreamWaitValueGeq;
    SPCCL_RETURN_IF_ERROR(
        driver.ToStatus(driver.StreamWaitValue32(stream, order->ready_pointer, order->value, how),
                        "cuStreamWaitValue32"));
  }
  return absl::OkStatus();
}

absl::Status RankGate::RailsStatus() const {
  for (const Gpu* const rail : rails_) SPCCL_RETURN_IF_ERROR(rail->status());
  return absl::OkStatus();
}

std::function<bool()> RankGate::NotReady() const {
  return [this] { return !IsReady(); };
}

std::function<bool()> RankGate::ReadyOrFailed() const {
  return [this] { return IsReady() || !RailsStatus().ok(); };
}

void RankGate::Pass() {
  const std::lock_guard lock(mutex_);
  passed_ = true;
  if (cancelled_) return;
  for (const auto& order : orders_) {
    // Relaxed: the rank's next write comes after it has seen `done`.
    if (order->resets) order->ready->store(0, std::memory_order_relaxed);
  }
}

// `self` keeps the gate: nobody else does, once it has passed and the task has ended.
Detached RankGate::WaitForRanks([[maybe_unused]] std::shared_ptr<RankGate> self,
                                std::function<void(absl::Status)> begun) {
  Gpu& gpu = *rails_[0];
  co_await ThreadOf(gpu);
  absl::Status status = RailsStatus();
  if (status.ok() && !IsReady()) {
    void* const stream = gpu.TakeWaitStream();
    if (stream != nullptr) {
      // What cannot be enqueued is asked for below.
      (void)EnqueueWaits(static_cast<cuda::Stream>(stream));
      gpu.CountRankWaits(1);
      // Those that have come, or were let through, are waited for no more: then it may have stuck.
      status = co_await EndOf(gpu, stream, NotReady());
      gpu.CountRankWaits(-1);
      gpu.GiveWaitStream(stream);
    }
  }
  if (status.ok() && !IsReady()) {
    co_await Polled(gpu, ReadyOrFailed());
  }
  if (status.ok()) status = RailsStatus();
  Pass();
  begun(status);
}

void RankGate::Cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (passed_ || cancelled_) return;
    cancelled_ = true;
  }
  if (LetRanksThrough()) return;
  // A rank's process can take its word back before the stream has looked.
  rails_[0]->PollUntil([self = shared_from_this()] { return self->LetRanksThrough(); });
}

bool RankGate::LetRanksThrough() {
  const std::lock_guard lock(mutex_);
  if (passed_) return true;
  for (const auto& order : orders_) LetThrough(*order);
  return false;
}

void RankGate::End() {
  const std::lock_guard lock(mutex_);
  passed_ = true;
  // The GPUs' work has ended: what it has written is there for whoever sees the word.
  for (const auto& order : orders_) order->WriteDone();
  orders_.clear();
}

}  // namespace spccl::runtime
