// Carries out one step of a plan for one slice, on host memory: receive, reduce, encode, store.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "collective/op.h"
#include "collective/plan/plan.h"
#include "collective/policy/send_policy.h"
#include "collective/runtime/layout.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

// The most bytes of a slice in the type of its partial sums: a thread's scratch holds four of them.
inline constexpr size_t kLargestSliceBytes = kScratchBytes / 4;

// What all steps of an operation share. Borrowed; read by several threads at once.
struct StepContext {
  OpDesc op;
  std::vector<RankBuffers> ranks;
  std::vector<uint32_t> node_of_rank;  // empty: one node
  Layout layout;
  transport::FramePool* pool;
  transport::Transport* transport;
};

// What one step needs and gives.
struct StepArgs {
  uint32_t rank;
  uint64_t lane;
  // One step, or a kCopy or kReduceStore with the kSend of the same chunk behind it: so the chunk
  // is sent from where it lies in the cache.
  std::span<const plan::Step> steps;
  transport::Frame frame;  // what the first step receives, if it receives
  policy::SendPolicy* policy;
  Scratch scratch;
};

struct StepResult {
  absl::Status status;
  int culprit_rank = -1;
  OpStats stats;
};

// Allocates nothing but frames. Thread-safe for different (rank, lane).
StepResult RunSteps(const StepContext& context, StepArgs args);

}  // namespace spccl::runtime
