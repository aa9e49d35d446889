// Where an operation on GPUs waits for the streams of its ranks, and tells them of its end.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/gpu_order.h"
#include "collective/runtime/rank_buffers.h"

namespace spccl::runtime {

// Of one operation. Thread-safe.
class RankGate final : public std::enable_shared_from_this<RankGate> {
 public:
  // `rails`: at least one. `local`: of the ranks of this node, for how they are ordered; empty:
  // nobody is waited for, and nobody told.
  RankGate(Gpus& gpus, std::vector<Gpu*> rails, std::span<const RankBuffers> local);

  // Calls `begun` when the ranks' buffers may be touched, or a rail has failed, or after Cancel: on
  // the first rail's issuing thread, not from within. Once.
  void Wait(std::function<void(absl::Status)> begun);
  // What is waited for need not come any more: its words are set for it.
  void Cancel();
  // The operation has ended: all ranks' `done`.
  void End();

 private:
  Detached WaitForRanks(std::shared_ptr<RankGate> self, std::function<void(absl::Status)> begun);
  bool IsReady() const;  // or need not be
  absl::Status EnqueueWaits(cuda::Stream stream) const;
  absl::Status RailsStatus() const;
  std::function<bool()> NotReady() const;
  std::function<bool()> ReadyOrFailed() const;
  // For a cancelled operation; true once nobody waits any more.
  bool LetRanksThrough();
  // No rank's `ready` is looked at any more.
  void Pass();

  Gpus& gpus_;
  const std::vector<Gpu*> rails_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const GpuOrder>> orders_;
  bool passed_ = false, cancelled_ = false;
};

}  // namespace spccl::runtime
