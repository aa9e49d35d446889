// Operations: from the last rank's part to the completion.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/policy/lossy.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "collective/runtime/make_task.h"
#include "daemon/engine.h"
#include "daemon/send_report.h"

namespace spccl::daemon {
namespace {

// `ranks`: the numbers of those whose buffers these are.
bool AllMapped(const std::vector<runtime::RankBuffers>& buffers, const std::vector<uint32_t>& ranks,
               const OpDesc& op) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const bool reads = !HasRoot(op.kind) || op.root == ranks[i];
    if (!buffers[i].recv.mapped() || (reads && !buffers[i].send.mapped())) return false;
  }
  return true;
}

// Of this node's ranks.
uint64_t InputBytes(const OpDesc& op, uint32_t ranks, const std::vector<uint32_t>& local_ranks) {
  const uint64_t readers = HasRoot(op.kind)
                               ? std::count(local_ranks.begin(), local_ranks.end(), op.root)
                               : local_ranks.size();
  return SendElements(op, ranks) * SizeOf(op.dtype) * readers;
}

constexpr uint32_t kNobody = UINT32_MAX;

// What one rank (kNobody: none of them) is told of an operation's end. The rank at fault gets the
// error itself, the others an error that names it. Where ranks disagree (FailedPrecondition) none
// is more at fault than another: all get that.
absl::Status StatusFor(uint32_t rank, const RunningOp& running, const runtime::OpResult& result) {
  const int culprit = result.culprit_rank;
  const bool is_known = culprit >= 0 && static_cast<size_t>(culprit) < running.rank_names->size();
  if (result.status.ok() || absl::IsFailedPrecondition(result.status) || !is_known ||
      static_cast<uint32_t>(culprit) == rank) {
    return result.status;
  }
  // acquire: pairs with Cancel()'s store. A reason to cancel names the culprit itself.
  const bool cancelled = running.cancelled.load(std::memory_order_acquire);
  if (cancelled && result.status == running.cancel_reason) return result.status;
  return absl::AbortedError(
      absl::StrCat((*running.rank_names)[culprit], ": ", result.status.message()));
}

void AddStats(const runtime::OpStats& stats, Counters& counters) {
  counters.dense_bytes += stats.dense_bytes;
  counters.wire_bytes += stats.wire_bytes;
  for (int format = 0; format < kFormatCount; ++format) {
    counters.sends_by_format[format] += stats.sends_by_format[format];
  }
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    for (int reason = 0; reason < policy::kReasonCount; ++reason) {
      counters.decisions[phase][reason] += stats.decisions[phase][reason];
    }
  }
  if (stats.input_elements != 0) {
    counters.last_input_nnz = stats.input_nnz;
    counters.last_input_elements = stats.input_elements;
  }
  if (stats.result_elements != 0) {
    counters.last_result_nnz = stats.result_nnz;
    counters.last_result_elements = stats.result_elements;
  }
  counters.encode_ns += stats.encode_ns;
  counters.send_ns += stats.send_ns;
  counters.reduce_ns += stats.reduce_ns;
  counters.receive_wait_ns += stats.receive_wait_ns;
  counters.room_wait_ns += stats.room_wait_ns;
}

// What sends decide may change with each operation: an event that tells so comes once so often.
constexpr int64_t kLookAtSendsNs = 1'000'000'000;

}  // namespace

void Engine::Pump(uint64_t comm_id) {
  CommEntry* const entry = registry_.FindComm(comm_id);
  if (entry == nullptr || entry->pumping) return;
  entry->pumping = true;
  if (stopping_ && !entry->comm.running()) {
    FailComm(comm_id, {.status = absl::UnavailableError(kStopping), .expected = true});
  }
  if (entry->across() && entry->comm.state() == Communicator::State::kReady) ReviewTuning(*entry);
  while (!HoldsForTuning(*entry)) {
    std::optional<ReadyOperation> ready = entry->comm.TakeReady(MonotonicNanos());
    if (!ready) break;
    Start(*entry, *std::move(ready));
  }
  // Only a rank that has left is news here; times are looked after by CheckDeadlines().
  if (auto failure = entry->comm.Check(0, options_.op_timeout_ns)) FailComm(comm_id, *failure);
  entry->pumping = false;
  EraseIfAbandoned(comm_id);
}

void Engine::Start(CommEntry& entry, ReadyOperation ready) {
  auto running = std::make_shared<RunningOp>();
  running->comm_id = entry.comm.id();
  running->sequence = ready.sequence;
  running->operation = registry_.next_operation++;
  running->parts = std::move(ready.parts);
  running->ranks = entry.comm.local_ranks();
  running->first_arrival_ns = ready.first_arrival_ns;
  running->last_arrival_ns = ready.last_arrival_ns;
  running->began_ns = MonotonicNanos();
  running->rank_names = entry.rank_names;
  entry.running = running;
  ++registry_.running_ops;
  runtime::OpResult at_once;
  at_once.status = ready.mismatch;
  const OpDesc op = running->parts[0].op;
  // Between nodes an empty operation runs too: others may have called another.
  const bool is_empty = op.count == 0 && !entry.across();
  if (at_once.status.ok() && op.count > 0) at_once.status = FindMixedMemory(entry, *running);
  if (!at_once.status.ok() || is_empty) return OnTaskDone(running, at_once);

  std::vector<runtime::RankBuffers> ranks;
  for (const RankPart& part : running->parts) ranks.push_back(part.buffers);
  running->payload_bytes = InputBytes(op, entry.comm.ranks(), running->ranks);
  absl::StatusOr<std::unique_ptr<runtime::Task>> task = MakeTask(entry, running, ranks);
  if (!task.ok()) {
    at_once.status = task.status();
    return OnTaskDone(running, at_once);
  }
  running->task = *std::move(task);
  running->task->SetOperation(running->operation);
  if (running->task->RunsItself()) {
    // Its own reference: the operation may end within.
    const std::shared_ptr<runtime::Task> task = running->task;
    if (auto part = task->ForChannels(); part != nullptr) Schedule(entry, std::move(part));
    return task->Start();
  }
  // A slice that must reach into another process may have to wait there: never on this thread.
  if (running->payload_bytes < options_.inline_bytes && AllMapped(ranks, running->ranks, op)) {
    RunInline(entry, running);
  } else {
    Schedule(entry, running->task);
  }
}

absl::StatusOr<std::unique_ptr<runtime::Task>> Engine::MakeTask(
    CommEntry& entry, const std::shared_ptr<RunningOp>& running,
    std::span<const runtime::RankBuffers> ranks) {
  policy::Settings settings = SettingsOf(entry);
  // Every operation draws anew, and every run of the program the same.
  settings.lossy.seed = policy::SeedOf(settings.lossy.seed, running->sequence);
  const auto done = [this, running](const runtime::OpResult& result) {
    OnTaskDone(running, result);
  };
  if (entry.across()) return MakeGroupTask(entry, running, ranks, settings);
  if (hooks_.gpus != nullptr && runtime::OnGpu(ranks)) {
    entry.running_algorithm = "gpu";
    return hooks_.make_gpu_task(entry.comm.id(), running->parts[0].op, ranks, settings, done);
  }
  entry.running_algorithm =
      std::string(policy::NameOf(runtime::Resolve(settings, running->parts[0].op.kind)));
  return hooks_.make_task(running->parts[0].op, ranks, settings, done);
}

const policy::Settings& Engine::SettingsOf(CommEntry& entry) {
  const uint64_t version = hooks_.settings_version();  // before the settings, which may be newer
  if (!entry.settings || entry.settings_version != version) {
    entry.settings = hooks_.settings(entry.comm.job_id(), entry.comm.id(), entry.comm.wishes());
    entry.settings_version = version;
  }
  return *entry.settings;
}

void Engine::RunInline(CommEntry& entry, const std::shared_ptr<RunningOp>& running) {
  // Its own reference: the operation's end drops the other.
  const std::shared_ptr<runtime::Task> task = running->task;
  runtime::Progress progress;
  do {
    progress = task->RunOne(scratch_);
  } while (progress == runtime::Progress::kRan);
  if (progress == runtime::Progress::kIdle) Schedule(entry, task);
}

void Engine::OnTaskDone(const std::shared_ptr<RunningOp>& running,
                        const runtime::OpResult& result) {
  running->ended_ns = MonotonicNanos();
  running->ended.store(true, std::memory_order_release);  // pairs with LeaveComm()
  for (size_t i = 0; i < running->parts.size(); ++i) {
    const uint32_t rank = running->ranks[i];
    if (!running->parts[i].Complete(StatusFor(rank, *running, result))) {
      running->broken_ranks.push_back(rank);
    }
  }
  if (loop_->OnLoopThread()) return Finish(running, result);
  loop_->Post([this, running, result] { Finish(running, result); });
}

void Engine::Finish(const std::shared_ptr<RunningOp>& running, const runtime::OpResult& result) {
  CommEntry* const entry = registry_.FindComm(running->comm_id);
  SPCCL_CHECK(entry != nullptr && entry->running == running);
  const int64_t now_ns = running->ended_ns;
  for (const uint32_t rank : running->broken_ranks) {
    Doom(entry->comm.member(rank).session_id,
         "broke the protocol: its completion ring has an impossible index");
  }
  ForEachCounters(*entry, [&](Counters& counters) {
    ++counters.ops;
    // What failed may have asked for any size, and moved none of it.
    if (result.status.ok()) {
      counters.payload_bytes += running->payload_bytes;
    } else {
      ++counters.failed_ops;
    }
    counters.busy_ns += static_cast<uint64_t>(now_ns - running->began_ns);
    AddStats(result.stats, counters);
  });
  if (!running->parts.empty()) {
    const OpDesc& op = running->parts[0].op;
    registry_.telemetry.AddOperation(op,
                                     {.first_arrival_ns = running->first_arrival_ns,
                                      .last_arrival_ns = running->last_arrival_ns,
                                      .began_ns = running->began_ns,
                                      .ended_ns = now_ns},
                                     result, running->payload_bytes);
    if (entry->across()) {
      NoteDensity(*entry->group, op.kind, result.stats);
      if (result.status.ok()) {
        entry->group->plans->Note(op.kind, result.stats, now_ns - running->began_ns);
        TellLead(*entry, op.kind);
      }
    }
    if (result.status.ok() && result.stats.dense_bytes != 0) {
      NoteSends(*entry, op.kind, result.stats);
    }
    LogFlight(*entry, result);
  }
  running->parts.clear();
  running->task.reset();
  entry->running.reset();
  --registry_.running_ops;
  entry->comm.FinishRunning(now_ns);
  // The other nodes would wait for this one's frames for ever.
  if (entry->across() && !result.status.ok()) {
    FailComm(running->comm_id,
             {.status = StatusFor(kNobody, *running, result), .culprit_rank = result.culprit_rank});
  } else if (!result.status.ok()) {
    KeepFlightOfFailed(*entry, result.status);
  }
  Pump(running->comm_id);
  EraseIfAbandoned(running->comm_id);
}

void Engine::NoteSends(CommEntry& entry, OpKind kind, const runtime::OpStats& stats) {
  entry.last_sends =
      std::make_shared<const SendsInfo>(SendsInfo{.operation = std::string(NameOf(kind)),
                                                  .algorithm = entry.running_algorithm,
                                                  .way = entry.running_way,
                                                  .steps = stats.send_steps});
  const int64_t now_ns = MonotonicNanos();
  const auto [told, is_new] = entry.sends_told.try_emplace(kind);
  if (!is_new && now_ns - entry.sends_looked_ns < kLookAtSendsNs) return;
  entry.sends_looked_ns = now_ns;
  std::string outline = Outline(*entry.last_sends);
  if (outline.empty() || told->second == outline) return;
  told->second = std::move(outline);
  Record("sends", entry.comm.job_id(), entry.comm.id(), entry.comm.uid(),
         Describe(*entry.last_sends), entry.last_sends);
}

void Engine::NameLate(const CommEntry& entry, CommFailure* failure) {
  if (entry.running == nullptr || !absl::IsDeadlineExceeded(failure->status)) return;
  const std::vector<RankPart>& parts = entry.running->parts;
  if (parts.empty() || parts[0].relay == nullptr) return;
  const std::vector<uint32_t> late = parts[0].relay->LateRanks(entry.comm.ranks());
  if (late.empty()) return;
  failure->culprit_rank = static_cast<int>(late.front());
  failure->status = absl::DeadlineExceededError(absl::StrCat(
      failure->status.message(), ": waited for ", entry.comm.NamesOf(late),
      late.size() == 1 ? ", which has not done its part" : ", which have not done their parts"));
}

void Engine::Cancel(CommEntry& entry, const CommFailure& failure) {
  // Its own references: Cancel() may end the operation right here.
  const std::shared_ptr<RunningOp> running = entry.running;
  const std::shared_ptr<runtime::Task> task = running->task;
  if (!task) return;
  running->cancel_reason = failure.status;
  running->cancelled.store(true, std::memory_order_release);  // pairs with StatusFor()
  task->Cancel(failure.status, failure.culprit_rank);
  scheduler_->Remove(task.get());
}

}  // namespace spccl::daemon
