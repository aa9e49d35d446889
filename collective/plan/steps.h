// How the makers of plans write steps down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/plan/plan.h"

namespace spccl::plan {

// Chunks that an owner of many has under way at a time: few frames wait, and each round of an
// algorithm costs one latency for so many chunks.
inline constexpr uint32_t kChunkBatch = 4;

inline Step CopyStep(Phase phase, uint32_t chunk, uint32_t contributions) {
  return {StepKind::kCopy, Operand::kInput, phase, chunk, kNobody, kNobody, contributions};
}

inline Step SendStep(Operand operand, Phase phase, uint32_t chunk, uint32_t to,
                     uint32_t contributions) {
  return {StepKind::kSend, operand, phase, chunk, kNobody, to, contributions};
}

// kReduceKeep or kReduceStore.
inline Step ReduceStep(StepKind kind, Operand operand, uint32_t chunk, uint32_t from,
                       uint32_t contributions) {
  return {kind, operand, Phase::kReduceScatter, chunk, from, kNobody, contributions};
}

// kForward, kStore or kStoreForward, of final values.
inline Step PassStep(StepKind kind, uint32_t chunk, uint32_t from, uint32_t to,
                     uint32_t contributions) {
  return {kind, Operand::kInput, Phase::kAllGather, chunk, from, to, contributions};
}

inline Plan EmptyPlan(OpKind op, Members members, uint32_t root, uint32_t chunks) {
  Plan plan{.op = op, .root = HasRoot(op) ? root : 0, .chunks = chunks, .members = {}, .steps = {}};
  plan.steps.resize(members.size());
  plan.members = std::move(members);
  return plan;
}

inline uint32_t Size(const Plan& plan, uint32_t participant) {
  return static_cast<uint32_t>(plan.members[participant].size());
}

// What there is to do where only one participant is: copy every chunk.
inline void CopyAll(Plan* plan) {
  const bool reduces = Reduces(plan->op);
  for (uint32_t chunk = 0; chunk < plan->chunks; ++chunk) {
    plan->steps[0].push_back(CopyStep(reduces ? Phase::kReduceScatter : Phase::kAllGather, chunk,
                                      reduces ? plan->ranks() : 1));
  }
}

}  // namespace spccl::plan
