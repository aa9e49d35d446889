#include "daemon/core.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/cpu_slice.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

constexpr auto kCallDeadline = std::chrono::seconds(2);
constexpr auto kBetweenLooks = std::chrono::microseconds(50);

class CoreSubscription final : public Subscription {
 public:
  explicit CoreSubscription(std::shared_ptr<Subscriber> subscriber)
      : subscriber_(std::move(subscriber)) {}
  ~CoreSubscription() override { subscriber_->Cancel(); }

 private:
  std::shared_ptr<Subscriber> subscriber_;
};

// The answer to a call, shared by the caller and the core thread: either may be gone first.
struct PendingCall {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  absl::Status status;
};

// Signals are for the program's main thread, wherever the core was created.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Core>> Core::Create(CoreOptions options, CoreHooks hooks,
                                                   Nodes* nodes) {
  const BlockSignals block;
  SPCCL_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  SPCCL_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                         Engine::Create(options, std::move(hooks), loop.get(), nodes));
  auto core = std::unique_ptr<Core>(new Core(options, std::move(loop), std::move(engine)));
  core->thread_ = std::thread([raw = core.get()] { raw->Run(); });
  ::pthread_setname_np(core->thread_.native_handle(), "spccl-core");
  return core;
}

Core::~Core() {
  loop_->Post([this] {
    engine_->StopNow();
    stop_deadline_ns_ = MonotonicNanos();
  });
  if (thread_.joinable()) thread_.join();
}

void Core::Run() {
  (void)SetCpuSlice(kShortestCpuSliceNs);  // all operations wait for this thread
  engine_->EnterThread();
  bool cancelled = false;
  while (!(engine_->stopping() && engine_->quiet())) {
    int wait_ms = engine_->Tick();
    if (stop_deadline_ns_ != 0) {
      const int64_t left_ns = stop_deadline_ns_ - MonotonicNanos();
      if (left_ns <= 0 && !std::exchange(cancelled, true)) {
        engine_->StopNow();
        continue;
      }
      if (left_ns > 0) wait_ms = std::min<int>(wait_ms, 1 + left_ns / 1'000'000);
    }
    loop_->RunOnce(wait_ms);
  }
  snapshot_calls_.AnswerAll();
  // On this thread still: sessions close, what they held is handed to the reaper.
  engine_->CloseAll();
  std::lock_guard lock(mutex_);
  stopped_ = true;
  stopped_changed_.notify_all();
}

void Core::BeginStop() {
  loop_->Post([this] {
    engine_->BeginStop();
    if (stop_deadline_ns_ == 0) stop_deadline_ns_ = MonotonicNanos() + stop_timeout_ns_;
  });
}

bool Core::WaitStopped(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  return stopped_changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                   [this] { return stopped_; });
}

absl::Status Core::Await(
    const std::function<void(std::function<void(absl::Status)> answer)>& start) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return absl::UnavailableError("spccld has stopped");
  }
  auto call = std::make_shared<PendingCall>();
  start([call](absl::Status status) {
    std::lock_guard lock(call->mutex);
    call->status = std::move(status);
    call->done = true;
    call->answered.notify_one();
  });
  std::unique_lock lock(call->mutex);
  if (!call->answered.wait_for(lock, kCallDeadline, [&] { return call->done; })) {
    // What is posted after the last turn is dropped.
    std::lock_guard mine(mutex_);
    if (stopped_) return absl::UnavailableError("spccld has stopped");
    return absl::DeadlineExceededError("the core thread does not answer");
  }
  return std::move(call->status);
}

absl::Status Core::Call(std::function<absl::Status(Engine&)> fn) {
  return Await([&](std::function<void(absl::Status)> answer) {
    loop_->Post([this, fn = std::move(fn), answer = std::move(answer)] { answer(fn(*engine_)); });
  });
}

Progress Core::GetProgress() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return Progress{.age_ns = 0, .healthy = false, .detail = "spccld has stopped"};
  }
  const int64_t now_ns = MonotonicNanos();
  const Scheduler& scheduler = engine_->scheduler();
  return JudgeProgress({.core_ns = now_ns - engine_->CoreHeartbeatNanos(),
                        .slice_ns = scheduler.OldestSliceNanos(now_ns),
                        .due_ns = scheduler.DueNanos(now_ns)},
                       stall_limit_ns_);
}

absl::Status Core::Reconfigure(const CoreOptions& next) {
  return Call([this, next](Engine& engine) {
    stop_timeout_ns_ = next.stop_timeout_ns;
    engine.Reconfigure(next);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::shared_ptr<const TakenSnapshot>> Core::TakeSnapshot() {
  // Shared: after a deadline the core thread may still write it.
  auto taken = std::make_shared<std::shared_ptr<const TakenSnapshot>>();
  SPCCL_RETURN_IF_ERROR(Await([&](std::function<void(absl::Status)> answer) {
    snapshot_calls_.Ask([taken, answer = std::move(answer)](const auto& snapshot) {
      *taken = snapshot;
      answer(absl::OkStatus());
    });
  }));
  return *taken;
}

absl::StatusOr<bool> Core::AwaitCounted(const std::vector<EndedOp>& ops) {
  auto left = std::make_shared<std::vector<EndedOp>>(ops);  // shared, as the snapshot is
  const auto deadline = std::chrono::steady_clock::now() + kCallDeadline;
  while (!left->empty()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kBetweenLooks);
    SPCCL_RETURN_IF_ERROR(Call([left](Engine& engine) {
      std::erase_if(*left, [&](const EndedOp& op) { return engine.IsCounted(op); });
      return absl::OkStatus();
    }));
  }
  return true;
}

absl::StatusOr<Snapshot> Core::GetSnapshot() {
  SPCCL_ASSIGN_OR_RETURN(std::shared_ptr<const TakenSnapshot> taken, TakeSnapshot());
  // Channel threads tell ranks an operation's end before the core thread counts it: after some
  // microseconds, unless they lose their core just then. Who asks because of an end finds it
  // counted.
  if (!taken->uncounted.empty()) {
    SPCCL_ASSIGN_OR_RETURN(const bool counted, AwaitCounted(taken->uncounted));
    if (counted) {
      SPCCL_ASSIGN_OR_RETURN(taken, TakeSnapshot());
    }
  }
  Snapshot snapshot = taken->snapshot;  // the caller's own, not copied by the core thread
  const Progress progress = GetProgress();
  snapshot.core.last_progress_age_ns = progress.age_ns;
  snapshot.core.healthy = progress.healthy;
  snapshot.core.health_detail = progress.detail;
  return snapshot;
}

absl::StatusOr<metrics::CoreSample> Core::GetCoreSample() {
  auto sample = std::make_shared<metrics::CoreSample>();  // shared, as the snapshot is
  SPCCL_RETURN_IF_ERROR(Call([sample](Engine& engine) {
    *sample = engine.MakeCoreSample();
    return absl::OkStatus();
  }));
  return std::move(*sample);
}

absl::StatusOr<v1::FlightRecord> Core::GetFlight(uint64_t comm_id, bool spans) {
  constexpr int64_t kAnswersNs = 500'000'000;
  const auto answers = std::make_shared<FlightAnswers>();
  const auto draft = std::make_shared<FlightDraft>();  // shared, as the snapshot is
  const absl::Status found = Call([=](Engine& engine) {
    SPCCL_ASSIGN_OR_RETURN(*draft, engine.DraftFlight(comm_id, answers));
    return absl::OkStatus();
  });
  if (absl::IsNotFound(found)) return engine_->FindKeptFlight(comm_id);
  SPCCL_RETURN_IF_ERROR(found);
  if (draft->record.state() == "failed") {
    // How it was before it failed says more than how it is.
    absl::StatusOr<v1::FlightRecord> kept = engine_->FindKeptFlight(comm_id);
    if (kept.ok()) return kept;
  }
  if (spans) AddSpans(engine_->ReadSpans(), draft.get());
  AddProcesses(&draft->record);
  for (FlightAnswers::Answered& answered : answers->Await(kAnswersNs)) {
    v1::FlightNode& node = *draft->record.mutable_nodes(answered.place);
    node.set_answered(true);
    answered.record.set_node(node.name());
    *draft->record.add_peers() = std::move(answered.record);
  }
  return std::move(draft->record);
}

absl::Status Core::AbortComm(uint64_t comm_id, const std::string& reason) {
  return Call([comm_id, reason](Engine& engine) { return engine.AbortComm(comm_id, reason); });
}

absl::StatusOr<EndedJob> Core::EndJob(const std::string& job_id) {
  auto ended = std::make_shared<EndedJob>();  // shared, as the snapshot is
  SPCCL_RETURN_IF_ERROR(Call([job_id, ended](Engine& engine) {
    *ended = engine.EndJob(job_id);
    return absl::OkStatus();
  }));
  return *ended;
}

void Core::RefreshShares() {
  Call([](Engine& engine) {
    engine.RefreshShares();
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status Core::SetDraining(bool draining) {
  return Call([draining](Engine& engine) {
    engine.SetDraining(draining);
    return absl::OkStatus();
  });
}

void Core::RecordEvent(Event event) {
  loop_->Post([this, event = std::move(event)] { engine_->events().Record(event); });
}

std::unique_ptr<Subscription> Core::Subscribe(uint64_t from_sequence, OnEvent on_event) {
  auto subscriber = std::make_shared<Subscriber>(std::move(on_event));
  loop_->Post(
      [this, subscriber, from_sequence] { engine_->events().Add(subscriber, from_sequence); });
  return std::make_unique<CoreSubscription>(subscriber);
}

}  // namespace spccl::daemon
