#include "collective/runtime/cuda/gpu_runner.h"

#include <utility>

#include "base/status.h"
#include "collective/runtime/cuda/gpu_run.h"

namespace spccl::runtime {

GpuRunner::GpuRunner(Gpus& gpus, std::vector<Gpu*> rails, std::shared_ptr<RankGate> gate,
                     const OpDesc& op, const policy::Settings& settings)
    : gpus_(gpus),
      rails_(std::move(rails)),
      gate_(std::move(gate)),
      intra_(settings, op, rails_.size()) {
  SPCCL_CHECK(!rails_.empty());
}

void GpuRunner::Run(const StepContext& context, StepArgs args,
                    std::function<void(StepResult)> ended) {
  Gpu& rail = RailOf(args.lane);
  const plan::Plan& plan = context.plan->plan;
  if (plan.participants() == 1 && intra_.TriesSparse(args.lane)) {
    ExchangeOnGpus(gpus_, rail, intra_, context, std::move(args), std::move(ended));
  } else {
    RunOnGpu(gpus_, rail, context, std::move(args), std::move(ended));
  }
}

}  // namespace spccl::runtime
