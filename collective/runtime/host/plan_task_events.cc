// What the transport tells a PlanTask: frames, room on a link, participants that have failed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collective/runtime/host/plan_task.h"

namespace spccl::runtime {

using plan::kNobody;
using plan::Step;

void PlanTask::OnRoom() {
  Follow follow;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return;
    for (Machine* const machine : std::exchange(without_room_, {})) {
      EndWait(machine);
      machine->state = State::kNoFrame;
      QueueIfRunnable(machine, /*at_end=*/false);
    }
    follow = TakeFollow();
  }
  Do(std::move(follow));
}

// A transport's thread does not end the operation: the transport would have to stop, and its owner
// to drop it, within a call of its own; and the task may still be in its constructor. Whoever asks
// next for a step ends it: the task is in a queue, or somebody is woken. With a runner, a thread of
// the runner's.
void PlanTask::FailFromAfar(absl::Status status, int culprit_rank) {
  Follow follow;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    FailLocked(std::move(status), culprit_rank);
    follow = TakeFollow();
  }
  Do(std::move(follow));
}

void PlanTask::OnPeerFailed(uint32_t rank, absl::Status reason) {
  FailFromAfar(std::move(reason), static_cast<int>(rank));
}

// What arrives must be what the plan has next on that edge: everything else is the sender's error.
absl::Status PlanTask::CheckTag(const transport::Tag& tag) const {
  const PreparedPlan& plan = *context_.plan;
  const auto participant = [&](uint32_t rank) {
    if (rank >= plan.participant_of_rank.size()) return kNobody;
    const uint32_t owner = plan.participant_of_rank[rank];
    return plan.first_rank[owner] == rank ? owner : kNobody;
  };
  const uint32_t from = participant(tag.from);
  const uint32_t to = participant(tag.to);
  if (from == kNobody || to == kNobody || place_[to] == kNobody) {
    return absl::DataLossError(absl::StrCat("a frame from rank ", tag.from, " to rank ", tag.to,
                                            ", which is not of this operation"));
  }
  const Slot& slot = slots_[tag.lane % slots_.size()];
  const std::vector<Step>& steps = plan.plan.steps[to];
  const Inbox* inbox = nullptr;
  size_t next = steps.size();
  if (slot.lane == tag.lane) {
    const Machine& machine = slot.machines[place_[to]];
    inbox = &machine.inbox;
    next = machine.step + (machine.state == State::kRunning ? RunAt(machine).size() : 0);
  } else if (tag.lane > slot.lane && tag.lane < context_.layout.lanes()) {
    const auto early = early_.find({tag.lane, place_[to]});
    if (early != early_.end()) inbox = &early->second;
    next = 0;
  }
  // Frames of this edge that wait already come first.
  ptrdiff_t skip = 0;
  if (inbox != nullptr) {
    skip = std::count_if(inbox->begin(), inbox->end(),
                         [&](const Arrived& one) { return one.tag.from == tag.from; });
  }
  for (; next < steps.size(); ++next) {
    if (!Receives(steps[next].kind) || steps[next].from != from || skip-- > 0) continue;
    if (steps[next].chunk == tag.chunk && steps[next].phase == tag.phase) return absl::OkStatus();
    break;
  }
  return absl::DataLossError(absl::StrCat("rank ", tag.to, " received a frame from rank ", tag.from,
                                          " that it does not expect: chunk ", tag.chunk, ", slice ",
                                          tag.lane));
}

void PlanTask::OnFrame(const transport::Tag& tag, transport::Frame frame) {
  Follow follow;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return;
    if (absl::Status status = CheckTag(tag); !status.ok()) {
      FailLocked(std::move(status), static_cast<int>(tag.from));
    } else {
      const uint32_t place = place_[context_.plan->participant_of_rank[tag.to]];
      Slot& slot = slots_[tag.lane % slots_.size()];
      if (slot.lane == tag.lane) {
        slot.machines[place].inbox.push_back({tag, std::move(frame)});
        QueueIfRunnable(&slot.machines[place]);
      } else {
        early_[{tag.lane, place}].push_back({tag, std::move(frame)});
      }
    }
    follow = TakeFollow();
  }
  Do(std::move(follow));
}

}  // namespace spccl::runtime
