// A PlanTask that runs itself: what can run goes to the runner, and comes back when it has ended.
//
// What keeps the task is its runs: whoever ends the last one ends the operation, after which the
// task may be gone. So no function here touches it after it has handed over, or ended, what it had.
#include <utility>

#include "base/status.h"
#include "collective/runtime/host/plan_task.h"

namespace spccl::runtime {

void PlanTask::Start() {
  SPCCL_CHECK(runner_ != nullptr);
  bool ends;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ends = TakeEnd();  // it has failed before
    if (!ends) ++running_;
  }
  if (ends) return End();
  runner_->Begin(context_,
                 [this](absl::Status status) { EndHold(std::move(status), /*begun=*/true); });
}

std::vector<PlanTask::Claim> PlanTask::TakeRuns() {
  std::vector<Claim> claims;
  while (begun_) {
    Claim claim;
    if (ClaimStep(&claim) != Progress::kRan) break;
    claims.push_back(std::move(claim));
  }
  return claims;
}

void PlanTask::Launch(std::vector<Claim> claims) {
  if (claims.empty()) return;
  const std::shared_ptr<StepRunner> runner = runner_;
  const uint64_t name = operation();
  for (Claim& claim : claims) {
    WriteWaits(claim);
    Machine& machine = *claim.machine;
    StepArgs args{.participant = machine.participant,
                  .lane = claim.lane,
                  .step = machine.step,
                  .frame = std::move(claim.frame),
                  .policy = &machine.policy,
                  .held = &machine.held,
                  .scratch = {},
                  .operation = name};
    const std::span<const plan::Step> steps = claim.steps;
    const uint64_t lane = claim.lane;
    // The claims behind this one keep the task.
    runner->Run(context_, std::move(args), [this, &machine, lane, steps](const StepResult& result) {
      EndRun({.machine = &machine, .lane = lane, .steps = steps, .frame = {}, .waited = {}},
             result);
    });
  }
}

void PlanTask::EndRun(const Claim& claim, const StepResult& result) {
  bool ends;
  std::vector<Claim> claims;
  {
    const std::lock_guard lock(mutex_);
    EndSteps(claim, result);
    ends = TakeEnd();
    if (!ends) claims = TakeRuns();
  }
  if (ends) return End();
  Launch(std::move(claims));
}

void PlanTask::EndHold(absl::Status status, bool begun) {
  bool ends;
  std::vector<Claim> claims;
  {
    const std::lock_guard lock(mutex_);
    --running_;
    if (begun) begun_ = true;
    if (!status.ok()) FailLocked(std::move(status), -1);
    ends = TakeEnd();
    if (!ends) claims = TakeRuns();
  }
  if (ends) return End();
  Launch(std::move(claims));
}

PlanTask::Follow PlanTask::TakeFollow() {
  Follow follow;
  if (runner_ == nullptr) {
    follow.wakes = TakeWake();
    return follow;
  }
  follow.cancels = failed_;
  if (failed_ && begun_ && running_ == 0 && !ended_) {
    ++running_;
    follow.holds = true;
  } else {
    follow.claims = TakeRuns();
  }
  return follow;
}

// From within the transport, which keeps the task.
void PlanTask::Do(Follow follow) {
  if (follow.wakes) Wake();
  if (follow.cancels) runner_->Cancel();
  if (follow.holds) {
    runner_->Post([this] { EndHold(absl::OkStatus(), /*begun=*/false); });
  }
  Launch(std::move(follow.claims));
}

}  // namespace spccl::runtime
