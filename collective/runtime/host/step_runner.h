// Carries out steps of a plan for one slice: receive, reduce, encode, store, send. On host memory
// by RunSteps; elsewhere by a StepRunner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "collective/plan/plan.h"
#include "collective/policy/send_policy.h"
#include "collective/runtime/host/held_frames.h"
#include "collective/runtime/host/step_context.h"
#include "collective/runtime/task.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

// The most bytes of a slice in the type of its partial sums: a thread's scratch holds four of them.
inline constexpr size_t kLargestSliceBytes = kScratchBytes / 4;

// What a run of steps needs and gives.
struct StepArgs {
  uint32_t participant;
  uint64_t lane;
  size_t step;  // where the run starts: PreparedPlan::RunAt; a step of which use.run_steps > 0
  transport::Frame frame;  // what its first step receives, if it receives
  policy::SendPolicy* policy;
  HeldFrames* held;
  Scratch scratch;
  uint64_t operation = 0;  // its name in spans
};

struct StepResult {
  absl::Status status;
  int culprit_rank = -1;
  OpStats stats;  // without steps
  // What was sent: the steps that did, by one decision.
  policy::Decision decision;
  bool density_known = false;                     // decision.sparsity means something
  uint64_t sent_bytes = 0, sent_dense_bytes = 0;  // of each

  // In `stats`, one send of this decision and these bytes.
  void CountSend(Phase phase, policy::Link link) {
    stats.dense_bytes += sent_dense_bytes;
    stats.wire_bytes += sent_bytes;
    ++stats.sends_by_format[static_cast<size_t>(decision.format)];
    ++stats.decisions[static_cast<size_t>(phase)][static_cast<size_t>(decision.reason)];
    ++stats.sends_by_link[static_cast<size_t>(link)];
    stats.wire_bytes_by_link[static_cast<size_t>(link)] += sent_bytes;
  }
};

// Allocates nothing but frames. Thread-safe for different (participant, lane).
StepResult RunSteps(const StepContext& context, StepArgs args);

// Carries out the runs of one operation somewhere else than on the thread that has them, and tells
// later that they have ended. Thread-safe.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Calls `begun` when the ranks' buffers may be touched: before the first run, once. It, like the
  // functions of the others, is called by a thread of the runner's and not from within. The context
  // stays until End.
  virtual void Begin(const StepContext& context, std::function<void(absl::Status)> begun) = 0;

  // RunSteps, but for the scratch, which is empty. `ended` comes when nothing touches the run's
  // buffers and frames any more.
  virtual void Run(const StepContext& context, StepArgs args,
                   std::function<void(StepResult)> ended) = 0;

  // What Begin waits for need not come any more.
  virtual void Cancel() = 0;

  virtual void Post(std::function<void()> work) = 0;

  // The operation has ended; no run is left. After an error it has been told to its owner before.
  virtual void End() = 0;
};

}  // namespace spccl::runtime
