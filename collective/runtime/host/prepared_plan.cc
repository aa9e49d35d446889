#include "collective/runtime/host/prepared_plan.h"

#include <algorithm>
#include <utility>

namespace spccl::runtime {
namespace {

using plan::Operand;
using plan::Step;
using plan::StepKind;

// Whether `next` sends what `first`, the start of a run, has at hand: final values that it stores
// or passes on, the partial that it keeps, or what it has just sent to another.
bool SendsTheSame(const Step& first, const Step& next) {
  if (next.kind != StepKind::kSend || next.chunk != first.chunk) return false;
  if (first.kind == StepKind::kSend) {
    return next.operand == first.operand && next.phase == first.phase;
  }
  if (first.kind == StepKind::kReduceKeep) return next.operand == Operand::kPartial;
  return plan::Stores(first.kind) && next.operand == Operand::kOutput;
}

bool Reads(const Step& step, Operand operand) {
  return (step.kind == StepKind::kSend || plan::Combines(step.kind)) && step.operand == operand;
}

// Whether the next of `steps` that stores `chunk` reduces into the outputs.
bool EndsReduced(std::span<const Step> steps, uint32_t chunk) {
  const auto stores = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
    return step.chunk == chunk && plan::Stores(step.kind);
  });
  return stores != steps.end() && stores->kind == StepKind::kReduceStore;
}

std::vector<StepUse> UsesOf(const std::vector<Step>& steps, uint32_t chunks) {
  std::vector<StepUse> uses(steps.size());
  for (size_t i = 0; i < steps.size();) {
    size_t end = i + 1;
    while (end < steps.size() && SendsTheSame(steps[i], steps[end])) ++end;
    uses[i].run_steps = static_cast<uint32_t>(end - i);
    i = end;
  }
  uint32_t ordinal = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (plan::Sends(steps[i].kind)) uses[i].send_ordinal = ordinal++;
  }
  // By chunk, what runs behind this one read.
  std::vector<bool> input(chunks), partial(chunks), frame(chunks);
  for (size_t i = steps.size(); i-- > 0;) {
    const Step& step = steps[i];
    if (uses[i].run_steps == 0) continue;
    uses[i].keep_input = input[step.chunk];
    uses[i].keep_partial = partial[step.chunk];
    uses[i].keep_frame = frame[step.chunk];
    uses[i].ends_reduced = EndsReduced(std::span(steps).subspan(i), step.chunk);
    for (const Step& one : std::span(steps).subspan(i, uses[i].run_steps)) {
      if (Reads(one, Operand::kInput) || one.kind == StepKind::kCopy) input[one.chunk] = true;
      if (Reads(one, Operand::kPartial)) partial[one.chunk] = true;
      if (one.kind == StepKind::kSend && one.operand == Operand::kOutput) frame[one.chunk] = true;
    }
    // What this run makes itself, no run before it has to keep.
    if (step.kind == StepKind::kReduceKeep && step.operand != Operand::kPartial) {
      partial[step.chunk] = false;
    }
    if (plan::Stores(step.kind)) frame[step.chunk] = false;
  }
  return uses;
}

bool HasOneMaker(const plan::Plan& plan) {
  std::vector<uint32_t> makers(plan.chunks);
  for (const std::vector<Step>& steps : plan.steps) {
    for (const Step& step : steps) {
      const bool makes = step.kind == StepKind::kCopy || step.kind == StepKind::kReduceStore;
      if (makes && ++makers[step.chunk] > 1) return false;
    }
  }
  return true;
}

}  // namespace

std::shared_ptr<const PreparedPlan> Prepare(plan::Plan plan) {
  auto prepared = std::make_shared<PreparedPlan>();
  prepared->participant_of_rank = plan::ParticipantOfRank(plan.members);
  for (uint32_t p = 0; p < plan.participants(); ++p) {
    const std::vector<Step>& steps = plan.steps[p];
    const auto sends = std::count_if(steps.begin(), steps.end(),
                                     [](const Step& step) { return plan::Sends(step.kind); });
    prepared->most_send_steps = std::max(prepared->most_send_steps, static_cast<uint32_t>(sends));
    prepared->uses.push_back(UsesOf(steps, plan.chunks));
    prepared->first_rank.push_back(plan.members[p][0]);
  }
  prepared->one_maker = HasOneMaker(plan);
  prepared->plan = std::move(plan);
  return prepared;
}

}  // namespace spccl::runtime
