#include "collective/runtime/cuda/multipath_task.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace spccl::runtime {

PathRates::Kind KindOf(uint64_t communicator, const OpDesc& op, size_t ranks,
                       const std::vector<Gpu*>& rails) {
  PathRates::Kind kind{.communicator = communicator,
                       .ranks = static_cast<uint32_t>(ranks),
                       .dtype = op.dtype,
                       .bytes = op.count * SizeOf(op.dtype)};
  for (const Gpu* const rail : rails) kind.gpus.push_back(rail->index());
  return kind;
}

MultipathTask::MultipathTask(Gpus& gpus, Options options, DoneFn done)
    : op_(options.op),
      kind_(std::move(options.kind)),
      make_device_(std::move(options.make_device)),
      rates_(std::move(options.rates)),
      gate_(std::make_shared<RankGate>(gpus, options.rails, options.ranks)),
      host_(options.host_bytes == 0
                ? nullptr
                : std::make_shared<HostRail>(
                      gpus, *options.rails[0], options.op, options.ranks,
                      options.op.count - options.host_bytes / SizeOf(options.op.dtype),
                      options.host_slice_bytes,
                      [this](const OpResult& result) { EndHost(result); })),
      done_(std::move(done)),
      parts_(host_ == nullptr ? 1 : 2) {}

// What keeps the task are its parts: whoever ends the last one may have it gone. So nothing here
// touches it after it has let its parts go on, or end.

void MultipathTask::Start() {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;  // it has been cancelled before: whoever did that ends it
    started_ = true;
    if (host_ != nullptr) host_->SetOperation(operation());
  }
  gate_->Wait([this](const absl::Status& ready) { Begin(ready); });
}

void MultipathTask::Begin(const absl::Status& ready) {
  OpResult over;
  over.status = ready;
  bool goes_by_host = false;
  if (ready.ok() && host_ != nullptr) {
    const absl::Status memory = host_->TakeMemory();
    goes_by_host = memory.ok();
    if (!goes_by_host) {
      Log(LogLevel::kDebug, "gpu", "no pinned memory: an operation goes over the GPUs alone",
          {{"reason", std::string(memory.message())}});
    }
  }
  const std::shared_ptr<HostRail> host = host_;
  const uint64_t host_bytes = goes_by_host ? host->bytes() : 0;
  std::shared_ptr<Task> device;
  {
    const std::lock_guard lock(mutex_);
    if (over.status.ok() && !failed_) {
      device = make_device_(op_.count - host_bytes / SizeOf(op_.dtype),
                            [this](const OpResult& result) { EndDevice(result); });
      device->SetOperation(operation());
      device_ = device;
      times_.device_bytes = kind_.bytes - host_bytes;
      times_.host_bytes = host_bytes;
      times_.warms = goes_by_host && host->warms();
      began_ns_ = MonotonicNanos();
    }
  }
  // Once both parts have been let go on, or have ended, the task may be gone.
  if (host != nullptr && !(goes_by_host && device != nullptr)) {
    host->Cancel(absl::OkStatus(), -1);
  } else if (host != nullptr) {
    host->Begin();
  }
  if (device != nullptr) {
    device->Start();
  } else {
    EndPart(over);
  }
}

void MultipathTask::EndDevice(const OpResult& result) {
  {
    const std::lock_guard lock(mutex_);
    times_.device_ns = MonotonicNanos() - began_ns_;
    times_.dense = result.stats.wire_bytes == 0;
  }
  EndPart(result);
}

void MultipathTask::EndHost(const OpResult& result) {
  {
    const std::lock_guard lock(mutex_);
    times_.host_ns = MonotonicNanos() - began_ns_;
  }
  EndPart(result);
}

void MultipathTask::EndPart(const OpResult& result) {
  bool ends;
  // The other part's, if it is to end: it may be the last one as soon as the lock is let go.
  std::shared_ptr<Task> host, device;
  {
    const std::lock_guard lock(mutex_);
    result_.stats.Add(result.stats);
    ends = --parts_ == 0;
    if (FailLocked(result.status, result.culprit_rank) && !ends) {
      host = host_;
      device = device_;
    }
  }
  if (ends) return End();
  if (host != nullptr) host->Cancel(result.status, result.culprit_rank);
  if (device != nullptr) device->Cancel(result.status, result.culprit_rank);
}

bool MultipathTask::FailLocked(const absl::Status& status, int culprit_rank) {
  if (failed_ || status.ok()) return false;  // the first reason counts
  failed_ = true;
  result_.status = status;
  result_.culprit_rank = culprit_rank;
  return true;
}

void MultipathTask::End() {
  // It lets the ranks' streams go on: to whom an error must have been told by then.
  const std::shared_ptr<RankGate> gate = gate_;
  DoneFn done;
  OpResult result;
  PathRates::Times times;
  {
    const std::lock_guard lock(mutex_);
    done = std::move(done_);
    result = std::move(result_);
    times = times_;
  }
  if (result.status.ok()) {
    rates_->Note(kind_, times);
    gate->End();
  }
  done(result);
  if (!result.status.ok()) gate->End();
}

// Who calls this keeps the task meanwhile.
void MultipathTask::Cancel(absl::Status reason, int culprit_rank) {
  std::shared_ptr<Task> device;
  bool started;
  {
    const std::lock_guard lock(mutex_);
    if (parts_ == 0 || !FailLocked(reason, culprit_rank)) return;
    device = device_;
    started = started_;
  }
  // It begins, and ends, when nobody waits for the ranks any more.
  if (started && device == nullptr) return gate_->Cancel();
  if (host_ != nullptr) host_->Cancel(reason, culprit_rank);
  if (device != nullptr) {
    device->Cancel(std::move(reason), culprit_rank);
  } else {
    EndPart({});
  }
}

TaskLook MultipathTask::Look() {
  std::shared_ptr<Task> device;
  {
    const std::lock_guard lock(mutex_);
    device = device_;
  }
  if (device == nullptr) {
    return {.total = 1, .lines = {{.doing = TaskLook::Doing::kQueued, .step = "copy", .count = 1}}};
  }
  TaskLook look = device->Look();
  if (host_ == nullptr) return look;
  TaskLook beside = host_->Look();
  look.progress += beside.progress;
  look.taken += beside.taken;
  look.total += beside.total;
  look.lines.insert(look.lines.end(), beside.lines.begin(), beside.lines.end());
  return look;
}

}  // namespace spccl::runtime
