// What all steps of an operation share.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collective/op.h"
#include "collective/policy/decision.h"
#include "collective/policy/lossy.h"
#include "collective/runtime/host/prepared_plan.h"
#include "collective/runtime/layout.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/send_step.h"
#include "collective/transport/transport.h"
#include "kernels/redop.h"

namespace spccl::runtime {

// Borrowed; read by several threads at once.
struct StepContext {
  OpDesc op;
  std::shared_ptr<const PreparedPlan> plan;
  std::vector<RankBuffers> ranks;      // by global rank; empty views of those elsewhere
  std::vector<uint32_t> node_of_rank;  // empty: one node
  Layout layout;
  policy::Lossy lossy;
  bool streaming;  // outputs are written past the caches: they do not stay there anyway
  // Of frames to other nodes, by their send's place in SendStepStats.
  std::vector<std::shared_ptr<transport::BusyMeter>> meters;
  transport::FramePool* pool;
  transport::Transport* transport;

  // Of partial sums; the operation's own where nothing is reduced.
  DType partial_type() const {
    return Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  }
  // Where a participant's step counts in OpStats::send_steps.
  size_t SendPlace(uint32_t participant, size_t step) const {
    return std::min<size_t>(plan->uses[participant][step].send_ordinal, kMostSendSteps - 1);
  }
  policy::Link LinkBetween(uint32_t participant, uint32_t other) const {
    if (node_of_rank.empty()) return policy::Link::kIntra;
    const uint32_t a = node_of_rank[plan->first_rank[participant]];
    const uint32_t b = node_of_rank[plan->first_rank[other]];
    return a == b ? policy::Link::kIntra : policy::Link::kInter;
  }
};

}  // namespace spccl::runtime
