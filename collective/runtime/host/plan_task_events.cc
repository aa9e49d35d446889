// What the transport tells a PlanTask: frames, room on a link, participants that have failed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collective/runtime/host/plan_task.h"

namespace spccl::runtime {

using plan::kNobody;
using plan::Step;

namespace {

// kNobody: it is not a participant's first.
uint32_t ParticipantAt(const PreparedPlan& plan, uint32_t rank) {
  if (rank >= plan.participant_of_rank.size()) return kNobody;
  const uint32_t owner = plan.participant_of_rank[rank];
  return plan.first_rank[owner] == rank ? owner : kNobody;
}

}  // namespace

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
  FailFromAfar(std::move(reason), rank == transport::kNobody ? -1 : static_cast<int>(rank));
}

// What arrives must be what the plan has next on that edge: everything else is the sender's error.
absl::Status PlanTask::CheckTag(const transport::Tag& tag) const {
  const uint32_t to = ParticipantAt(*context_.plan, tag.to);
  if (ParticipantAt(*context_.plan, tag.from) == kNobody || to == kNobody ||
      place_[to] == kNobody) {
    return absl::DataLossError(absl::StrCat("a frame from rank ", tag.from, " to rank ", tag.to,
                                            ", which is not of this operation"));
  }
  if (StepOf(tag, /*behind_announced=*/false).has_value()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rank ", tag.to, " received a frame from rank ", tag.from,
                                          " that it does not expect: chunk ", tag.chunk, ", slice ",
                                          tag.lane));
}

// The receiver's step that the frame is for, if the plan has it next on that edge: behind those
// that are here, and if so said, those that are on their way.
std::optional<size_t> PlanTask::StepOf(const transport::Tag& tag, bool behind_announced) const {
  const uint32_t from = ParticipantAt(*context_.plan, tag.from);
  const uint32_t to = ParticipantAt(*context_.plan, tag.to);
  if (from == kNobody || to == kNobody || place_[to] == kNobody) return std::nullopt;
  const Slot& slot = slots_[tag.lane % slots_.size()];
  const std::vector<Step>& steps = context_.plan->plan.steps[to];
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
  const auto is_of_edge = [&](const auto& one) { return one.tag.from == tag.from; };
  ptrdiff_t skip = 0;
  if (inbox != nullptr) skip = std::count_if(inbox->begin(), inbox->end(), is_of_edge);
  if (const auto found = announced_.find({tag.lane, place_[to]});
      behind_announced && found != announced_.end()) {
    skip += std::count_if(found->second.begin(), found->second.end(), is_of_edge);
  }
  for (; next < steps.size(); ++next) {
    if (!Receives(steps[next].kind) || steps[next].from != from || skip-- > 0) continue;
    if (steps[next].chunk == tag.chunk && steps[next].phase == tag.phase) return next;
    break;
  }
  return std::nullopt;
}

// What others were told of a frame that is passed on must be what it is.
absl::Status PlanTask::TakeAnnounced(const transport::Tag& tag, uint64_t bytes) {
  const uint32_t place = place_[context_.plan->participant_of_rank[tag.to]];
  const auto found = announced_.find({tag.lane, place});
  if (found == announced_.end()) return absl::OkStatus();
  auto& sizes = found->second;
  const auto size = std::find_if(sizes.begin(), sizes.end(), [&](const auto& one) {
    return one.tag.from == tag.from && one.tag.chunk == tag.chunk && one.tag.phase == tag.phase;
  });
  if (size == sizes.end()) return absl::OkStatus();
  if (size->bytes != bytes) {
    return absl::DataLossError(absl::StrCat("rank ", tag.to, " received a frame of ", bytes,
                                            " bytes from rank ", tag.from,
                                            " that was announced with ", size->bytes, " (chunk ",
                                            tag.chunk, ", slice ", tag.lane, ")"));
  }
  sizes.erase(size);
  if (sizes.empty()) announced_.erase(found);
  return absl::OkStatus();
}

std::vector<transport::Tag> PlanTask::PassedOn(uint32_t participant, size_t step,
                                               uint64_t lane) const {
  const PreparedPlan& plan = *context_.plan;
  const std::span<const Step> run = plan.RunAt(participant, step);
  std::vector<transport::Tag> tags;
  if (run.empty() || !Receives(run[0].kind) || Combines(run[0].kind)) return tags;
  for (const Step& send : run) {
    if (!Sends(send.kind) || place_[send.to] != kNobody) continue;
    tags.push_back({.from = plan.first_rank[participant],
                    .to = plan.first_rank[send.to],
                    .lane = lane,
                    .chunk = send.chunk,
                    .phase = send.phase});
  }
  return tags;
}

bool PlanTask::PassesOn() const {
  return std::any_of(mine_.begin(), mine_.end(), [this](uint32_t participant) {
    const size_t steps = context_.plan->plan.steps[participant].size();
    for (size_t step = 0; step < steps; ++step) {
      if (!PassedOn(participant, step, 0).empty()) return true;
    }
    return false;
  });
}

// The frame comes, and is passed on, only after this has returned: so nothing is announced that has
// been sent. What the plan does not have is refused when it comes.
void PlanTask::OnAnnounced(const transport::FrameSize& size) {
  if (!passes_on_) return;
  std::vector<transport::FrameSize> ahead;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return;
    const std::optional<size_t> step = StepOf(size.tag, /*behind_announced=*/true);
    if (!step.has_value()) return;
    const uint32_t to = context_.plan->participant_of_rank[size.tag.to];
    announced_[{size.tag.lane, place_[to]}].push_back(size);
    for (const transport::Tag& tag : PassedOn(to, *step, size.tag.lane)) {
      ahead.push_back({.tag = tag, .bytes = size.bytes});
    }
  }
  // Where it cannot be told, the frame cannot be sent: Send says so, or the transport who is lost.
  if (!ahead.empty()) (void)transport_->AnnounceAhead(ahead);
}

void PlanTask::OnFrame(const transport::Tag& tag, transport::Frame frame) {
  Follow follow;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_) return;
    absl::Status status = CheckTag(tag);
    if (status.ok()) status = TakeAnnounced(tag, frame.size_bytes());
    if (!status.ok()) {
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
