#include "collective/runtime/host/plan_task.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/redop.h"

namespace spccl::runtime {
namespace {

// A frame, the partial sums, what a rank adds and what is sent next: four of these fit into L2.
constexpr size_t kDefaultSliceBytes = size_t{256} << 10;

// A tile of the pici format; shorter slices only where that was asked for.
constexpr uint64_t kSliceGranule = 16;

// One RunOne goes on while its steps were tiny, so that a claim costs little beside them.
constexpr uint64_t kLeastElements = 4096;

uint64_t SliceElements(const OpDesc& op, size_t slice_bytes) {
  const DType partial = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const size_t bytes =
      std::min(slice_bytes == 0 ? kDefaultSliceBytes : slice_bytes, kLargestSliceBytes);
  return std::max(bytes / SizeOf(partial) / kSliceGranule * kSliceGranule, kSliceGranule);
}

// Two machines for every thread that the computer can run, and never less than two lanes, so that
// one may end while the other goes on.
uint32_t OpenLanes(uint32_t wanted, uint32_t ranks, uint64_t lanes) {
  const uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  const uint32_t window = wanted != 0 ? wanted : std::max(2U, (2 * threads + ranks - 1) / ranks);
  return static_cast<uint32_t>(std::min<uint64_t>(window, lanes));
}

}  // namespace

PlanTask::PlanTask(Options options, DoneFn done)
    : plan_(std::move(options.plan)),
      first_policy_(options.settings, options.op),
      context_{options.op,
               std::move(options.ranks),
               std::move(options.node_of_rank),
               Layout(options.op, plan_->chunks, SliceElements(options.op, options.slice_bytes)),
               options.pool,
               options.transport.get()},
      transport_(std::move(options.transport)),
      done_(std::move(done)) {
  SPCCL_CHECK(plan_->ranks() == context_.ranks.size());
  transport_->Start(this);
  const std::lock_guard lock(mutex_);
  unfinished_lanes_ = context_.layout.lanes();
  slots_.resize(OpenLanes(options.open_lanes, plan_->ranks(), unfinished_lanes_));
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].machines.resize(plan_->ranks());
    OpenLane(slot, slot);
  }
}

PlanTask::~PlanTask() {
  transport_->Stop();
}

Progress PlanTask::RunOne(Scratch scratch) {
  uint64_t work_elements = 0;
  Progress progress;
  do {
    progress = RunStep(scratch, &work_elements);
  } while (progress == Progress::kRan && work_elements < kLeastElements);
  return progress;
}

Progress PlanTask::RunStep(Scratch scratch, uint64_t* work_elements) {
  Claim claim;
  {
    const std::lock_guard lock(mutex_);
    const Progress progress = ClaimStep(&claim);
    if (progress != Progress::kRan) return progress;
  }
  *work_elements += 64 + context_.layout.SliceElements(claim.steps[0].chunk, claim.lane);
  const StepResult result = RunSteps(context_, {.rank = claim.machine->rank,
                                                .lane = claim.lane,
                                                .steps = claim.steps,
                                                .frame = std::move(claim.frame),
                                                .policy = &claim.machine->policy,
                                                .scratch = scratch});
  bool ends;
  bool wakes;
  {
    const std::lock_guard lock(mutex_);
    EndSteps(claim, result);
    ends = TakeEnd();
    wakes = TakeWake();
  }
  if (wakes) Wake();
  if (!ends) return Progress::kRan;
  End();
  return Progress::kDone;
}

Progress PlanTask::ClaimStep(Claim* claim) {
  if (failed_ || unfinished_lanes_ == 0) return Progress::kDone;
  if (runnable_.empty()) {
    parked_ = true;
    return Progress::kIdle;
  }
  Machine* const machine = runnable_.back();
  runnable_.pop_back();
  machine->state = State::kRunning;
  ++running_;
  claim->machine = machine;
  claim->lane = slots_[machine->slot].lane;
  claim->steps = StepsAt(*machine);
  if (Receives(claim->steps[0].kind)) {
    const auto arrived =
        std::find_if(machine->inbox.begin(), machine->inbox.end(),
                     [&](const Arrived& one) { return one.tag.from == claim->steps[0].from; });
    claim->frame = std::move(arrived->frame);
    machine->inbox.erase(arrived);
  }
  return Progress::kRan;
}

// The machine's next step; with it the send of the same chunk that follows a copy or the end of a
// reduction.
std::span<const plan::Step> PlanTask::StepsAt(const Machine& machine) const {
  const std::span<const plan::Step> rest =
      std::span(plan_->steps[machine.rank]).subspan(machine.step);
  const bool makes_chunk =
      rest[0].kind == plan::StepKind::kCopy || rest[0].kind == plan::StepKind::kReduceStore;
  const bool with_send = makes_chunk && rest.size() > 1 && rest[1].kind == plan::StepKind::kSend &&
                         rest[1].chunk == rest[0].chunk;
  return rest.first(with_send ? 2 : 1);
}

bool PlanTask::CanRun(const Machine& machine) const {
  const plan::Step& step = plan_->steps[machine.rank][machine.step];
  return !Receives(step.kind) ||
         std::any_of(machine.inbox.begin(), machine.inbox.end(),
                     [&](const Arrived& one) { return one.tag.from == step.from; });
}

void PlanTask::QueueIfRunnable(Machine* machine) {
  if (machine->state != State::kWaiting || !CanRun(*machine)) return;
  machine->state = State::kQueued;
  runnable_.push_back(machine);
}

void PlanTask::OpenLane(uint32_t slot, uint64_t lane) {
  slots_[slot].lane = lane;
  slots_[slot].unfinished = plan_->ranks();
  for (uint32_t rank = 0; rank < plan_->ranks(); ++rank) {
    Machine& machine = slots_[slot].machines[rank];
    machine.rank = rank;
    machine.slot = slot;
    machine.step = 0;
    machine.state = State::kWaiting;
    machine.policy = first_policy_;
    if (!CanRun(machine)) continue;
    // To the other end: lanes that are open already go first.
    machine.state = State::kQueued;
    runnable_.push_front(&machine);
  }
}

void PlanTask::EndSteps(const Claim& claim, const StepResult& result) {
  Machine& machine = *claim.machine;
  --running_;
  result_.stats.Add(result.stats);
  if (!result.status.ok()) Fail(result.status, result.culprit_rank);
  if (failed_) return;
  machine.step += claim.steps.size();
  if (machine.step < plan_->steps[machine.rank].size()) {
    machine.state = State::kWaiting;
    QueueIfRunnable(&machine);
    return;
  }
  machine.state = State::kDone;
  Slot& slot = slots_[machine.slot];
  if (--slot.unfinished > 0) return;
  --unfinished_lanes_;
  const uint64_t next = slot.lane + slots_.size();
  if (next < context_.layout.lanes()) OpenLane(machine.slot, next);
}

void PlanTask::Fail(absl::Status status, int culprit_rank) {
  if (failed_) return;  // the first reason counts
  failed_ = true;
  result_.status = std::move(status);
  result_.culprit_rank = culprit_rank;
}

bool PlanTask::TakeEnd() {
  if (ended_ || running_ > 0 || (!failed_ && unfinished_lanes_ > 0)) return false;
  ended_ = true;
  return true;
}

bool PlanTask::TakeWake() {
  // After a failure an idle thread is woken to find the task done.
  if (!parked_ || (runnable_.empty() && !failed_ && unfinished_lanes_ > 0)) return false;
  parked_ = false;
  return true;
}

void PlanTask::End() {
  transport_->Stop();
  DoneFn done;
  OpResult result;
  {
    const std::lock_guard lock(mutex_);
    runnable_.clear();
    slots_.clear();  // frames go back to the pool
    done = std::move(done_);
    result = std::move(result_);
  }
  done(result);
}

void PlanTask::Cancel(absl::Status reason, int culprit_rank) {
  bool ends;
  bool wakes;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    Fail(std::move(reason), culprit_rank);
    ends = TakeEnd();
    wakes = TakeWake();
  }
  if (wakes) Wake();
  if (ends) End();
}

void PlanTask::OnPeerFailed(uint32_t rank, absl::Status reason) {
  Cancel(std::move(reason), static_cast<int>(rank));
}

// What arrives must be what the plan has next on that edge: everything else is the sender's error.
absl::Status PlanTask::CheckTag(const transport::Tag& tag) const {
  if (tag.to >= plan_->ranks() || tag.from >= plan_->ranks()) {
    return absl::DataLossError(
        absl::StrCat("a frame from rank ", tag.from, " to rank ", tag.to, " of ", plan_->ranks()));
  }
  const Slot& slot = slots_[tag.lane % slots_.size()];
  const Machine& machine = slot.machines[tag.to];
  const std::vector<plan::Step>& steps = plan_->steps[tag.to];
  // Frames of this edge that wait already come first.
  auto skip = std::count_if(machine.inbox.begin(), machine.inbox.end(),
                            [&](const Arrived& one) { return one.tag.from == tag.from; });
  size_t next = machine.step + (machine.state == State::kRunning ? StepsAt(machine).size() : 0);
  for (; slot.lane == tag.lane && next < steps.size(); ++next) {
    if (!Receives(steps[next].kind) || steps[next].from != tag.from || skip-- > 0) continue;
    if (steps[next].chunk == tag.chunk && steps[next].phase == tag.phase) {
      return absl::OkStatus();
    }
    break;
  }
  return absl::DataLossError(absl::StrCat("rank ", tag.to, " received a frame from rank ", tag.from,
                                          " that it does not expect: chunk ", tag.chunk, ", slice ",
                                          tag.lane));
}

void PlanTask::OnFrame(const transport::Tag& tag, transport::Frame frame) {
  absl::Status status;
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (failed_ || ended_ || slots_.empty()) return;
    status = CheckTag(tag);
    if (status.ok()) {
      Machine& machine = slots_[tag.lane % slots_.size()].machines[tag.to];
      machine.inbox.push_back({tag, std::move(frame)});
      QueueIfRunnable(&machine);
      wakes = TakeWake();
    }
  }
  if (!status.ok()) {
    Cancel(status, static_cast<int>(tag.from));
    return;
  }
  if (wakes) Wake();
}

}  // namespace spccl::runtime
