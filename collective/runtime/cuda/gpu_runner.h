// Carries out the runs of one operation on GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collective/runtime/cuda/gpu_exchange.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/cuda/rank_gate.h"
#include "collective/runtime/host/step_runner.h"

namespace spccl::runtime {

// Lane l runs on rail l modulo their number, whosever memory it is: a GPU reads from its peers and
// writes to them. All that a run enqueues goes into one stream; the host orders runs among each
// other, and them with the ranks (docs/adr/0020). Thread-safe.
class GpuRunner final : public StepRunner {
 public:
  // `rails`: at least one. `gate`: where the operation waits for its ranks, on the same rails.
  GpuRunner(Gpus& gpus, std::vector<Gpu*> rails, std::shared_ptr<RankGate> gate, const OpDesc& op,
            const policy::Settings& settings);

  void Begin(const StepContext& /*context*/, std::function<void(absl::Status)> begun) override {
    gate_->Wait(std::move(begun));
  }
  void Run(const StepContext& context, StepArgs args,
           std::function<void(StepResult)> ended) override;
  void Cancel() override { gate_->Cancel(); }
  void Post(std::function<void()> work) override { rails_[0]->Post(std::move(work)); }
  void End() override { gate_->End(); }

  Gpus& gpus() { return gpus_; }
  Gpu& RailOf(uint64_t lane) { return *rails_[lane % rails_.size()]; }

 private:
  Gpus& gpus_;
  const std::vector<Gpu*> rails_;
  const std::shared_ptr<RankGate> gate_;
  IntraPolicy intra_;
};

}  // namespace spccl::runtime
