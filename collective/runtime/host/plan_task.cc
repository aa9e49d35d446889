#include "collective/runtime/host/plan_task.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/runtime/rank_buffers.h"
#include "kernels/lossy_layout.h"
#include "kernels/redop.h"

namespace spccl::runtime {
namespace {

using plan::kNobody;
using plan::Step;

// A frame, the partial sums, what a rank adds and what is sent next: four of these fit into L2.
constexpr size_t kDefaultSliceBytes = size_t{256} << 10;

// A slice is a number of these, or, but for tests' tiny ones, of QSGD's buckets: then buckets begin
// at the same elements whatever the slices' size.
constexpr uint64_t kSliceGranule = 16;

// One RunOne goes on while its steps were tiny, so that a claim costs little beside them.
constexpr uint64_t kLeastElements = 4096;

// Lanes that are open between nodes: what keeps a link busy while others wake up and work.
constexpr uint32_t kLanesBetweenNodes = 16;

// Two machines for every thread that the computer can run, and never less than two lanes, so that
// one may end while the other goes on.
uint32_t OpenLanes(const PlanTask::Options& options, size_t mine, uint64_t lanes) {
  const uint64_t threads = std::max(1U, std::thread::hardware_concurrency());
  uint64_t window = std::max<uint64_t>(2, (2 * threads + mine - 1) / mine);
  if (mine < options.plan->plan.participants()) {
    window = std::max<uint64_t>(window, kLanesBetweenNodes);
  }
  if (options.open_lanes != 0) window = options.open_lanes;
  return static_cast<uint32_t>(std::min(window, lanes));
}

std::vector<uint32_t> AllOr(std::vector<uint32_t> mine, uint32_t participants) {
  if (mine.empty()) {
    mine.resize(participants);
    std::iota(mine.begin(), mine.end(), 0);
  }
  std::sort(mine.begin(), mine.end());
  return mine;
}

std::vector<uint32_t> Places(const std::vector<uint32_t>& mine, uint32_t participants) {
  std::vector<uint32_t> places(participants, kNobody);
  for (uint32_t place = 0; place < mine.size(); ++place) places[mine[place]] = place;
  return places;
}

bool Streams(const OpDesc& op, const plan::Plan& plan, const std::vector<uint32_t>& mine) {
  uint64_t ranks = 0;
  for (const uint32_t participant : mine) ranks += plan.members[participant].size();
  return RecvElements(op, plan.ranks()) * SizeOf(op.dtype) * ranks >= kStreamingBytes;
}

// Of a send; the frame was encoded for the first of those that share it.
void CountDecision(const StepResult& result, bool encoded, SendStepStats* stats) {
  const policy::Decision& decision = result.decision;
  ++stats->decisions[static_cast<size_t>(decision.reason)];
  ++stats->formats[static_cast<size_t>(decision.format)];
  if (result.density_known) {
    stats->sparsity_sum += decision.sparsity;
    ++stats->sparsity_count;
  }
  if (decision.threshold != 0) stats->threshold = decision.threshold;
  stats->wire_bytes += result.sent_bytes;
  stats->dense_bytes += result.sent_dense_bytes;
  if (encoded) stats->encode_ns += result.stats.encode_ns;
  if (!decision.forecast) return;
  constexpr double kNanos = 1e9;
  ++stats->forecasts;
  stats->predicted_ns += decision.forecast->seconds * kNanos;
  stats->predicted_wire_ns += decision.forecast->wire_seconds * kNanos;
  if (encoded) stats->predicted_encode_ns += decision.forecast->encode_seconds * kNanos;
  if (!decision.runner_up) return;
  ++stats->runners_up[static_cast<size_t>(decision.runner_up->format)];
  stats->runner_up_ns += decision.runner_up->seconds * kNanos;
}

std::vector<std::shared_ptr<transport::BusyMeter>> Meters(const PreparedPlan& plan) {
  std::vector<std::shared_ptr<transport::BusyMeter>> meters(
      std::min<size_t>(plan.most_send_steps, kMostSendSteps));
  for (auto& meter : meters) meter = std::make_shared<transport::BusyMeter>();
  return meters;
}

}  // namespace

uint64_t SliceElements(const OpDesc& op, size_t slice_bytes, size_t largest_bytes) {
  const DType partial = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const size_t bytes = std::min(slice_bytes == 0 ? kDefaultSliceBytes : slice_bytes, largest_bytes);
  const uint64_t elements = bytes / SizeOf(partial);
  const uint64_t granule = elements < kBucketElements / 2 ? kSliceGranule : kBucketElements;
  return std::max(elements / granule * granule, granule);
}

PlanTask::PlanTask(Options options, DoneFn done)
    : mine_(AllOr(options.mine, options.plan->plan.participants())),
      place_(Places(mine_, options.plan->plan.participants())),
      costs_(options.costs),
      first_policy_(options.settings, options.op, costs_ ? &*costs_ : nullptr, options.habit),
      transport_(std::move(options.transport)),
      runner_(std::move(options.runner)),
      context_{.op = options.op,
               .plan = options.plan,
               .ranks = std::move(options.ranks),
               .node_of_rank = std::move(options.node_of_rank),
               .layout = Layout(
                   options.op, options.plan->plan.chunks,
                   SliceElements(options.op, options.slice_bytes,
                                 runner_ == nullptr ? kLargestSliceBytes : kLargestGpuSliceBytes)),
               .lossy = options.settings.lossy,
               .streaming = Streams(options.op, options.plan->plan, mine_),
               .meters = Meters(*options.plan),
               .pool = options.pool,
               .transport = transport_.get()},
      passes_on_(PassesOn()),
      done_(std::move(done)) {
  SPCCL_CHECK(context_.plan->plan.ranks() == context_.ranks.size());
  {
    const std::lock_guard lock(mutex_);
    result_.stats.send_steps.resize(context_.meters.size());
    unfinished_lanes_ = context_.layout.lanes();
    slots_.resize(OpenLanes(options, mine_.size(), unfinished_lanes_));
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      slots_[slot].machines.resize(mine_.size());
      OpenLane(slot, slot);
    }
  }
  transport_->Start(this);
}

PlanTask::~PlanTask() {
  transport_->Stop();
}

Progress PlanTask::RunOne(Scratch scratch) {
  if (runner_ != nullptr) return Progress::kDone;  // nothing is here to claim
  uint64_t work_elements = 0;
  Progress progress;
  do {
    progress = RunStep(scratch, &work_elements);
  } while (progress == Progress::kRan && work_elements < kLeastElements);
  return progress;
}

Progress PlanTask::RunStep(Scratch scratch, uint64_t* work_elements) {
  Claim claim;
  Progress progress;
  bool ends;
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    progress = ClaimStep(&claim);
    ends = progress == Progress::kDone && TakeEnd();
  }
  if (progress == Progress::kRan) {
    WriteWaits(claim);
    *work_elements += 64 + context_.layout.SliceElements(claim.steps[0].chunk, claim.lane);
    const StepResult result = RunSteps(context_, {.participant = claim.machine->participant,
                                                  .lane = claim.lane,
                                                  .step = claim.machine->step,
                                                  .frame = std::move(claim.frame),
                                                  .policy = &claim.machine->policy,
                                                  .held = &claim.machine->held,
                                                  .scratch = scratch,
                                                  .operation = operation()});
    const std::lock_guard lock(mutex_);
    EndSteps(claim, result);
    ends = TakeEnd();
    wakes = TakeWake();
  }
  if (wakes) Wake();
  if (!ends) return progress;
  End();
  return Progress::kDone;
}

Progress PlanTask::ClaimStep(Claim* claim) {
  if (failed_ || unfinished_lanes_ == 0) return Progress::kDone;
  Machine* machine = nullptr;
  while (machine == nullptr) {
    if (runnable_.empty()) {
      parked_ = true;
      return Progress::kIdle;
    }
    machine = runnable_.back();
    runnable_.pop_back();
    // Others may have filled the link meanwhile.
    machine->state = State::kNoFrame;
    if (HasRoom(*machine)) break;
    QueueIfRunnable(std::exchange(machine, nullptr));
  }
  machine->state = State::kRunning;
  ++running_;
  claim->machine = machine;
  claim->lane = slots_[machine->slot].lane;
  claim->steps = RunAt(*machine);
  claim->waited = std::exchange(machine->waited, {});
  if (Receives(claim->steps[0].kind)) {
    const uint32_t from = context_.plan->first_rank[claim->steps[0].from];
    const auto arrived = std::find_if(machine->inbox.begin(), machine->inbox.end(),
                                      [&](const Arrived& one) { return one.tag.from == from; });
    claim->frame = std::move(arrived->frame);
    machine->inbox.erase(arrived);
  }
  return Progress::kRan;
}

std::span<const Step> PlanTask::RunAt(const Machine& machine) const {
  return context_.plan->RunAt(machine.participant, machine.step);
}

bool PlanTask::HasFrame(const Machine& machine) const {
  const Step& step = RunAt(machine)[0];
  if (!Receives(step.kind)) return true;
  const uint32_t from = context_.plan->first_rank[step.from];
  return std::any_of(machine.inbox.begin(), machine.inbox.end(),
                     [&](const Arrived& one) { return one.tag.from == from; });
}

bool PlanTask::HasRoom(const Machine& machine) const {
  const std::span<const Step> run = RunAt(machine);
  return std::all_of(run.begin(), run.end(), [&](const Step& step) {
    return !Sends(step.kind) || place_[step.to] != kNobody ||
           transport_->HasRoom(context_.plan->first_rank[step.to]);
  });
}

void PlanTask::QueueIfRunnable(Machine* machine, bool at_end) {
  if (machine->state != State::kNoFrame || !HasFrame(*machine)) return;
  EndWait(machine);
  if (!HasRoom(*machine)) {
    machine->state = State::kNoRoom;
    without_room_.push_back(machine);
    return;
  }
  machine->state = State::kQueued;
  if (at_end) {
    runnable_.push_back(machine);
  } else {
    runnable_.push_front(machine);
  }
}

// The machine's wait for a frame, or for room, is over; another may begin.
void PlanTask::EndWait(Machine* machine) {
  const int64_t now_ns = MonotonicNanos();
  const bool room = machine->state == State::kNoRoom;
  uint64_t& sum = room ? result_.stats.room_wait_ns : result_.stats.receive_wait_ns;
  sum += static_cast<uint64_t>(now_ns - machine->waits_since_ns);
  WaitTimes& waited = machine->waited;
  int64_t& since_ns = room ? waited.room_since_ns : waited.frame_since_ns;
  if (since_ns == 0) since_ns = machine->waits_since_ns;
  (room ? waited.room_until_ns : waited.frame_until_ns) = now_ns;
  machine->waits_since_ns = now_ns;
}

void PlanTask::OpenLane(uint32_t slot, uint64_t lane) {
  slots_[slot].lane = lane;
  slots_[slot].unfinished = static_cast<uint32_t>(mine_.size());
  for (uint32_t place = 0; place < mine_.size(); ++place) {
    Machine& machine = slots_[slot].machines[place];
    machine.participant = mine_[place];
    machine.slot = slot;
    machine.step = 0;
    machine.state = State::kNoFrame;
    machine.waits_since_ns = MonotonicNanos();
    machine.waited = {};
    machine.policy = first_policy_;
    machine.inbox.clear();
    if (const auto early = early_.find({lane, place}); early != early_.end()) {
      machine.inbox = std::move(early->second);
      early_.erase(early);
    }
    if (context_.plan->plan.steps[machine.participant].empty()) {
      machine.state = State::kDone;
      --slots_[slot].unfinished;
      continue;
    }
    // To the other end: lanes that are open already go first.
    QueueIfRunnable(&machine, /*at_end=*/false);
  }
}

void PlanTask::EndSteps(const Claim& claim, const StepResult& result) {
  Machine& machine = *claim.machine;
  --running_;
  ++runs_done_;
  result_.stats.Add(result.stats);
  CountSends(claim, result);
  if (!result.status.ok()) FailLocked(result.status, result.culprit_rank);
  if (failed_) return;
  machine.step += claim.steps.size();
  if (machine.step < context_.plan->plan.steps[machine.participant].size()) {
    machine.state = State::kNoFrame;
    machine.waits_since_ns = MonotonicNanos();
    QueueIfRunnable(&machine);
    return;
  }
  machine.state = State::kDone;
  machine.held.Clear();
  Slot& slot = slots_[machine.slot];
  if (--slot.unfinished > 0) return;
  --unfinished_lanes_;
  const uint64_t next = slot.lane + slots_.size();
  if (next < context_.layout.lanes()) OpenLane(machine.slot, next);
}

void PlanTask::CountSends(const Claim& claim, const StepResult& result) {
  if (result.sent_bytes == 0) return;
  const uint32_t participant = claim.machine->participant;
  bool first = true;
  for (size_t i = 0; i < claim.steps.size(); ++i) {
    const Step& step = claim.steps[i];
    if (!Sends(step.kind)) continue;
    SendStepStats& stats =
        result_.stats.send_steps[context_.SendPlace(participant, claim.machine->step + i)];
    stats.phase = step.phase;
    stats.link = context_.LinkBetween(participant, step.to);
    CountDecision(result, /*encoded=*/std::exchange(first, false), &stats);
  }
}

void PlanTask::FailLocked(absl::Status status, int culprit_rank) {
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
    without_room_.clear();
    slots_.clear();  // frames go back to the pool
    early_.clear();
    announced_.clear();
    for (size_t i = 0; i < context_.meters.size(); ++i) {
      result_.stats.send_steps[i].wire_ns = context_.meters[i]->busy_ns();
    }
    done = std::move(done_);
    result = std::move(result_);
  }
  // It lets the ranks' streams go on: to whom an error must have been told by then.
  const std::shared_ptr<StepRunner> runner = runner_;
  if (runner != nullptr && result.status.ok()) runner->End();
  done(result);
  if (runner != nullptr && !result.status.ok()) runner->End();
}

void PlanTask::Cancel(absl::Status reason, int culprit_rank) {
  bool ends;
  bool wakes;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    FailLocked(std::move(reason), culprit_rank);
    ends = TakeEnd();
    wakes = TakeWake();
  }
  if (wakes) Wake();
  if (ends) return End();
  if (runner_ != nullptr) runner_->Cancel();
}

}  // namespace spccl::runtime
