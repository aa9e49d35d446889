// Carries out the runs of one operation on GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpu_exchange.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/gpu_order.h"
#include "collective/runtime/host/step_runner.h"
#include "collective/runtime/rank_buffers.h"

namespace spccl::runtime {

// Lane l runs on rail l modulo their number, whosever memory it is: a GPU reads from its peers and
// writes to them. All that a run enqueues goes into one stream; the host orders runs among each
// other, and them with the ranks (docs/adr/0020). Thread-safe.
class GpuRunner final : public StepRunner, public std::enable_shared_from_this<GpuRunner> {
 public:
  // `rails`: at least one. `local`: of the ranks of this node, for how they are ordered.
  GpuRunner(Gpus& gpus, std::vector<Gpu*> rails, std::span<const RankBuffers> local,
            const OpDesc& op, const policy::Settings& settings);

  void Begin(const StepContext& context, std::function<void(absl::Status)> begun) override;
  void Run(const StepContext& context, StepArgs args,
           std::function<void(StepResult)> ended) override;
  void Cancel() override;
  void Post(std::function<void()> work) override { rails_[0]->Post(std::move(work)); }
  void End() override;

  Gpus& gpus() { return gpus_; }
  Gpu& RailOf(uint64_t lane) { return *rails_[lane % rails_.size()]; }

 private:
  Detached WaitForRanks(std::shared_ptr<GpuRunner> self, std::function<void(absl::Status)> begun);
  bool IsReady() const;  // or need not be
  absl::Status EnqueueWaits(cuda::Stream stream) const;
  absl::Status RailsStatus() const;
  std::function<bool()> ReadyOrFailed() const;
  // For a cancelled operation; true once nobody waits any more.
  bool LetRanksThrough();
  // No rank's `ready` is looked at any more.
  void Pass();

  Gpus& gpus_;
  const std::vector<Gpu*> rails_;
  IntraPolicy intra_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const GpuOrder>> orders_;
  bool passed_ = false, cancelled_ = false;
};

}  // namespace spccl::runtime
