// The two calls of ControlService that last.
#include <algorithm>
#include <chrono>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "daemon/control_service.h"
#include "daemon/control_service_convert.h"
#include "daemon/control_service_event_queue.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;
// gRPC wakes nobody when a caller of a synchronous method goes away: how often we look.
constexpr int64_t kLookForCancelNs = 50 * kNanosPerMilli;
constexpr uint32_t kDefaultIntervalMs = 1000, kLeastIntervalMs = 10, kMostIntervalMs = 3'600'000;

int64_t UnixNanos() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

bool ControlService::WaitUntil(const grpc::ServerContext& context, int64_t monotonic_ns) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (stopping_ || context.IsCancelled()) return false;
    const int64_t left = monotonic_ns - MonotonicNanos();
    if (left <= 0) return true;
    changed_.wait_for(lock, std::chrono::nanoseconds(std::min(left, kLookForCancelNs)));
  }
}

absl::Status ControlService::Telemeter(grpc::ServerContext* context,
                                       const v1::StreamTelemetryRequest& request,
                                       const Caller& caller,
                                       grpc::ServerWriter<v1::Telemetry>* writer) {
  const uint32_t interval_ms =
      request.interval_ms() == 0 ? kDefaultIntervalMs : request.interval_ms();
  if (interval_ms < kLeastIntervalMs || interval_ms > kMostIntervalMs) {
    return absl::InvalidArgumentError(absl::StrCat("interval_ms: found ", interval_ms,
                                                   ", expected ", kLeastIntervalMs, " to ",
                                                   kMostIntervalMs));
  }
  int64_t due = MonotonicNanos();
  do {
    SPCCL_ASSIGN_OR_RETURN(Snapshot all, core_->GetSnapshot());
    const Snapshot visible = VisibleTo(caller, std::move(all));
    v1::Telemetry telemetry;
    telemetry.set_boot_id(BootIdText(visible.core.boot_id));
    telemetry.set_unix_nanos(UnixNanos());
    telemetry.set_monotonic_nanos(MonotonicNanos());
    *telemetry.mutable_status() = StatusOf(visible, caller.administrator);
    for (const JobInfo& job : visible.jobs) *telemetry.add_jobs() = ToProto(job);
    for (const CommInfo& comm : visible.comms) *telemetry.add_comms() = ToProto(comm);
    if (!writer->Write(telemetry)) break;
    // A slow reader gets the next one late, not several at once.
    due = std::max(due + interval_ms * kNanosPerMilli, MonotonicNanos());
  } while (WaitUntil(*context, due));
  return absl::CancelledError("the stream has ended");
}

absl::Status ControlService::TellEvents(grpc::ServerContext* context,
                                        const v1::StreamEventsRequest& request,
                                        const Caller& caller, uint64_t boot_id,
                                        grpc::ServerWriter<v1::StreamEventsResponse>* writer) {
  EventQueue queue(caller, request.from_sequence());
  const std::unique_ptr<Subscription> subscription = core_->Subscribe(
      request.from_sequence(), [&queue](const EventPtr& event) { queue.Push(event); });
  // The core answers in order: once it has answered this, the subscription stands, and the events
  // that it keeps have come.
  SPCCL_RETURN_IF_ERROR(core_->GetSnapshot().status());
  // Tells the caller so, before any event: what happens from now on it is told.
  writer->SendInitialMetadata();
  const auto write = [&](const EventQueue::Entry& entry) {
    v1::StreamEventsResponse response;
    response.set_boot_id(BootIdText(boot_id));
    response.set_lost(entry.lost);
    *response.mutable_event() = ToProto(*entry.event);
    return writer->Write(response);
  };
  EventQueue::Entry entry;
  while (WaitUntil(*context, 0)) {
    if (!queue.Pop(request.follow() ? kLookForCancelNs : 0, &entry)) {
      if (!request.follow()) return absl::OkStatus();
      continue;
    }
    if (!write(entry)) break;
  }
  // A daemon that stops tells its last events too. Where the caller has gone, the first write
  // fails.
  while (queue.Pop(0, &entry) && write(entry)) {
  }
  return absl::CancelledError("the stream has ended");
}

}  // namespace spccl::daemon
