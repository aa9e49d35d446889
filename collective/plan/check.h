// Executes a plan with symbols for values, and finds what is wrong with it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "collective/plan/plan.h"

namespace spccl::plan {

// Frames that may wait between one participant and another, per lane, before a sender must wait in
// turn. One less than this and a ring whose participants all forward at once could not move.
inline constexpr uint32_t kFramesPerEdge = 2;

// OK if, in every order of execution (steps of different participants commute, so one order stands
// for all): each participant ends with each contribution exactly once in each chunk that it owes
// and with nothing else; what is received is what was sent; nothing sent is left over; nobody waits
// for ever, with `frames_per_edge` frames between any two; no input is read after the output that
// may lie in its place was written; `contributions` says the truth. Else FailedPrecondition with
// the participant and the step.
absl::Status Check(const Plan& plan, uint32_t frames_per_edge = kFramesPerEdge);

}  // namespace spccl::plan
