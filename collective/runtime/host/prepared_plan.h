// A plan, with what the runtime asks of it again and again worked out once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/plan/plan.h"

namespace spccl::runtime {

// How a step fits among its participant's others.
struct StepUse {
  // Steps from this one on that are done at one go: it, and the sends of what it has made, sent or
  // stored, which follow it. 0 for such a send itself.
  uint32_t run_steps = 0;
  uint32_t send_ordinal = 0;  // of this step among the participant's sends, if it sends
  // What the runtime keeps of this step's chunk when its run is over, for a later step:
  bool keep_input = false;    // the input, which is read again
  bool keep_partial = false;  // the partial
  bool keep_frame = false;    // the frame of final values, which is sent again
  // The next step that stores this chunk reduces into the outputs: the sum may be made in them.
  bool ends_reduced = false;
};

// Immutable; shared by operations.
struct PreparedPlan {
  plan::Plan plan;
  std::vector<std::vector<StepUse>> uses;     // by participant and step
  std::vector<uint32_t> first_rank;           // by participant: its lowest
  std::vector<uint32_t> participant_of_rank;  // by rank
  uint32_t most_send_steps = 0;               // of a participant
  // Every chunk's final values are made by one participant: what it sends of them is what all
  // others have. (In recursive doubling all participants make all of them.)
  bool one_maker = true;

  // Steps [step, step + run_steps).
  std::span<const plan::Step> RunAt(uint32_t participant, size_t step) const {
    return std::span(plan.steps[participant]).subspan(step, uses[participant][step].run_steps);
  }
};

// The plan has passed plan::Check.
std::shared_ptr<const PreparedPlan> Prepare(plan::Plan plan);

}  // namespace spccl::runtime
