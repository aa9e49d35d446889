// What a PlanTask tells of itself: its waits as spans, and what it does just now.
#include <algorithm>

#include "collective/runtime/host/plan_task.h"
#include "collective/runtime/span_ring.h"

namespace spccl::runtime {
namespace {

using plan::kNobody;
using plan::Step;

// The first that a run sends to; kNobody if it sends nothing.
uint32_t SentTo(std::span<const Step> run) {
  const auto sends =
      std::find_if(run.begin(), run.end(), [](const Step& step) { return Sends(step.kind); });
  return sends == run.end() ? kNobody : sends->to;
}

}  // namespace

void PlanTask::WriteWaits(const Claim& claim) const {
  // Shorter ones say nothing, and take the place of spans that do.
  constexpr int64_t kWorthNs = 5'000;
  SpanRing* const ring = SpanRing::OfThisThread();
  if (ring == nullptr) return;
  const auto write = [&](SpanKind kind, uint32_t peer, int64_t since_ns, int64_t until_ns) {
    if (until_ns - since_ns < kWorthNs) return;
    Span span{.operation = operation(),
              .rank = context_.plan->first_rank[claim.machine->participant],
              .peer = context_.plan->first_rank[peer],
              .lane = static_cast<uint32_t>(claim.lane),
              .chunk = claim.steps[0].chunk,
              .kind = kind,
              .phase = claim.steps[0].phase,
              .link = context_.LinkBetween(claim.machine->participant, peer)};
    span.SetTimes(since_ns, until_ns);
    ring->Write(span);
  };
  const WaitTimes& waited = claim.waited;
  if (Receives(claim.steps[0].kind)) {
    write(SpanKind::kWaitFrame, claim.steps[0].from, waited.frame_since_ns, waited.frame_until_ns);
  }
  const uint32_t to = SentTo(claim.steps);
  if (to != kNobody) {
    write(SpanKind::kWaitRoom, to, waited.room_since_ns, waited.room_until_ns);
  }
}

TaskLook PlanTask::Look() {
  TaskLook look;
  const std::lock_guard lock(mutex_);
  look.progress = runs_done_;
  look.total = context_.layout.lanes();
  look.taken = look.total - unfinished_lanes_;
  for (const Slot& slot : slots_) {
    for (const Machine& machine : slot.machines) {
      if (machine.state == State::kDone) continue;
      const TaskLook::Line line = LineOf(machine);
      const auto same = std::find_if(look.lines.begin(), look.lines.end(), [&](const auto& other) {
        return other.doing == line.doing && other.rank == line.rank && other.peer == line.peer &&
               other.step == line.step;
      });
      if (same == look.lines.end()) {
        look.lines.push_back(line);
      } else {
        ++same->count;
        same->since_ns = std::min(same->since_ns, line.since_ns);
      }
    }
  }
  return look;
}

TaskLook::Line PlanTask::LineOf(const Machine& machine) const {
  using Doing = TaskLook::Doing;
  const std::span<const Step> run = RunAt(machine);
  TaskLook::Line line{.rank = context_.plan->first_rank[machine.participant],
                      .step = plan::NameOf(run[0].kind),
                      .count = 1,
                      .since_ns = machine.waits_since_ns};
  uint32_t peer = kNobody;
  if (machine.state == State::kNoFrame) {
    line.doing = Doing::kWaitsForFrame;
    peer = run[0].from;
  } else if (machine.state == State::kNoRoom) {
    line.doing = Doing::kWaitsForRoom;
    peer = SentTo(run);
  } else if (machine.state == State::kRunning) {
    line.doing = Doing::kRuns;
  }
  if (peer != kNobody) line.peer = context_.plan->first_rank[peer];
  return line;
}

}  // namespace spccl::runtime
