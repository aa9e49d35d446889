// The daemon's core: the core thread and what it owns. Runs in the daemon, and in tests' processes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/control.h"
#include "daemon/core_options.h"
#include "daemon/engine.h"
#include "daemon/event_loop.h"
#include "daemon/snapshot_calls.h"

namespace spccl::daemon {

class Core final : public Control {
 public:
  // Listens on runtime_dir/session.sock and serves from its own thread on. `nodes`: the daemons of
  // other nodes, borrowed; nullptr: none.
  static absl::StatusOr<std::unique_ptr<Core>> Create(CoreOptions options, CoreHooks hooks,
                                                      Nodes* nodes = nullptr);
  // Stops at once: cancels what runs and waits only for slices that are in the middle.
  ~Core() override;

  // Graceful: nothing new is taken, clients are told, what runs may end within stop_timeout_ns,
  // then it is cancelled. Returns at once.
  void BeginStop();
  // Whether the core has stopped within the time. Nothing is served any more then.
  bool WaitStopped(int64_t timeout_ns);

  // Control. Not to be called from an event's callback. Unavailable once stopped; DeadlineExceeded
  // if the core thread does not answer.
  absl::StatusOr<Snapshot> GetSnapshot() override;
  absl::StatusOr<v1::FlightRecord> GetFlight(uint64_t comm_id, bool spans) override;
  Progress GetProgress() override;
  absl::Status AbortComm(uint64_t comm_id, const std::string& reason) override;
  absl::StatusOr<EndedJob> EndJob(const std::string& job_id) override;
  void RefreshShares() override;
  absl::Status SetDraining(bool draining) override;
  void RecordEvent(Event event) override;
  std::unique_ptr<Subscription> Subscribe(uint64_t from_sequence, OnEvent on_event) override;

  // For the metrics. Errors as above.
  absl::StatusOr<metrics::CoreSample> GetCoreSample();

  // Puts the limits and the time limits of `next` in force; everything else in it is ignored. What
  // began under the old ones ends under them. Errors as above.
  absl::Status Reconfigure(const CoreOptions& next);

  // For tests: mappings that the core holds now.
  uint32_t mappings() const { return engine_->reaper().mappings(); }

 private:
  Core(const CoreOptions& options, std::unique_ptr<EventLoop> loop, std::unique_ptr<Engine> engine)
      : stall_limit_ns_(options.stall_limit_ns),
        stop_timeout_ns_(options.stop_timeout_ns),
        loop_(std::move(loop)),
        engine_(std::move(engine)) {}
  void Run();
  // Has `start` begin something that ends with a call of what it is given, and waits for that.
  absl::Status Await(const std::function<void(std::function<void(absl::Status)> answer)>& start);
  // Runs `fn` on the core thread and waits for it.
  absl::Status Call(std::function<absl::Status(Engine&)> fn);
  absl::StatusOr<std::shared_ptr<const TakenSnapshot>> TakeSnapshot();
  // Waits until the core thread has counted them; false: it has not in time.
  absl::StatusOr<bool> AwaitCounted(const std::vector<EndedOp>& ops);

  const int64_t stall_limit_ns_;
  int64_t stop_timeout_ns_;  // core thread
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Engine> engine_;
  SnapshotCalls snapshot_calls_{
      [this](std::function<void()> fn) { loop_->Post(std::move(fn)); },
      [this] {
        std::vector<EndedOp> uncounted = engine_->Uncounted();  // before what it may be counted in
        return std::make_shared<const TakenSnapshot>(
            TakenSnapshot{.snapshot = engine_->MakeSnapshot(), .uncounted = std::move(uncounted)});
      }};
  int64_t stop_deadline_ns_ = 0;  // core thread; 0: not stopping

  mutable std::mutex mutex_;
  std::condition_variable stopped_changed_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace spccl::daemon
