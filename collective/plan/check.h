// Executes a plan with symbols for values, and finds what is wrong with it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// Frames that may wait between one participant and another, per lane, before a sender must wait in
// turn. Enough for every plan but halving and doubling, which may have half of its chunks waiting.
inline constexpr uint32_t kFramesPerEdge = 8;

// OK if, in every order of execution (steps of different participants commute, so one order stands
// for all): each participant ends with each rank's contribution exactly once in each chunk that it
// owes and with nothing else; nothing is combined with what it has in it already; what is received
// is what was sent; nothing sent is left over; nobody waits for ever, with `frames_per_edge` frames
// between any two; no input is read after the output that may lie in its place was written; only
// final values travel in kAllGather and are stored; `contributions` says the truth; every rank is a
// member of one participant. Else FailedPrecondition with the participant and the step.
absl::Status Check(const Plan& plan, uint32_t frames_per_edge);

// With kFramesPerEdge, or as many as there are chunks.
absl::Status Check(const Plan& plan);

}  // namespace spccl::plan
