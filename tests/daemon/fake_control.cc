#include "tests/daemon/fake_control.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::daemon {
namespace {

constexpr std::chrono::seconds kPatience(10);

}  // namespace

class FakeControl::Subscriber final : public Subscription {
 public:
  Subscriber(FakeControl* owner, uint64_t id) : owner_(owner), id_(id) {}
  ~Subscriber() override {
    const std::lock_guard lock(owner_->mutex_);
    owner_->subscribers_.erase(id_);
    owner_->changed_.notify_all();
  }

 private:
  FakeControl* const owner_;
  const uint64_t id_;
};

absl::StatusOr<Snapshot> FakeControl::GetSnapshot() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, [this] { return answers_left_ != 0; })) {
    return absl::DeadlineExceededError("the test has let the core hang");
  }
  if (answers_left_ > 0) --answers_left_;
  SPCCL_RETURN_IF_ERROR(FailureLocked());
  if (answers_before_failure_ > 0) --answers_before_failure_;
  return snapshot_;
}

absl::Status FakeControl::FailureLocked() const {
  return answers_before_failure_ > 0 ? absl::OkStatus() : failure_;
}

absl::StatusOr<v1::FlightRecord> FakeControl::GetFlight(uint64_t comm_id, bool spans) {
  const std::lock_guard lock(mutex_);
  const auto found = flights_.find(comm_id);
  if (found == flights_.end()) return absl::NotFoundError("no such communicator");
  v1::FlightRecord record = found->second;
  if (!spans) record.clear_spans();
  return record;
}

void FakeControl::SetFlight(v1::FlightRecord record) {
  const std::lock_guard lock(mutex_);
  flights_[record.comm_id()] = std::move(record);
}

Progress FakeControl::GetProgress() {
  const std::lock_guard lock(mutex_);
  return {.age_ns = snapshot_.core.last_progress_age_ns,
          .healthy = failure_.ok() && snapshot_.core.healthy,
          .detail = snapshot_.core.health_detail};
}

absl::Status FakeControl::AbortComm(uint64_t comm_id, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  SPCCL_RETURN_IF_ERROR(FailureLocked());
  const bool known = std::any_of(snapshot_.comms.begin(), snapshot_.comms.end(),
                                 [comm_id](const CommInfo& comm) { return comm.id == comm_id; });
  if (!known) return absl::NotFoundError("no such communicator");
  aborts_.emplace_back(comm_id, reason);
  return absl::OkStatus();
}

absl::StatusOr<EndedJob> FakeControl::EndJob(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  SPCCL_RETURN_IF_ERROR(FailureLocked());
  EndedJob ended;
  for (const JobInfo& job : snapshot_.jobs) {
    if (job.id != job_id) continue;
    ended = {.sessions = job.sessions,
             .communicators = job.communicators,
             .buffer_bytes = job.buffer_bytes};
  }
  snapshot_.core.sessions -= ended.sessions;
  std::erase_if(snapshot_.jobs, [&](const JobInfo& job) { return job.id == job_id; });
  return ended;
}

void FakeControl::RefreshShares() {
  const std::lock_guard lock(mutex_);
  ++refreshes_;
}

int FakeControl::refreshes() {
  const std::lock_guard lock(mutex_);
  return refreshes_;
}

absl::Status FakeControl::SetDraining(bool draining) {
  const std::lock_guard lock(mutex_);
  SPCCL_RETURN_IF_ERROR(FailureLocked());
  snapshot_.core.draining = draining;
  return absl::OkStatus();
}

std::unique_ptr<Subscription> FakeControl::Subscribe(uint64_t from_sequence, OnEvent on_event) {
  const std::lock_guard lock(mutex_);
  for (const EventPtr& event : kept_) {
    if (from_sequence > 0 && event->sequence >= from_sequence) on_event(event);
  }
  const uint64_t id = next_subscriber_++;
  subscribers_[id] = std::move(on_event);
  changed_.notify_all();
  return std::make_unique<Subscriber>(this, id);
}

void FakeControl::Update(const std::function<void(Snapshot*)>& change) {
  const std::lock_guard lock(mutex_);
  change(&snapshot_);
}

void FakeControl::Fail(absl::Status status, int after) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(status);
  answers_before_failure_ = after;
}

void FakeControl::AnswerOnly(int count) {
  const std::lock_guard lock(mutex_);
  answers_left_ = count;
}

void FakeControl::AnswerAll() {
  const std::lock_guard lock(mutex_);
  answers_left_ = -1;
  changed_.notify_all();
}

void FakeControl::Emit(Event event, uint64_t skip) {
  const std::lock_guard lock(mutex_);
  event.sequence = next_sequence_ + skip;
  next_sequence_ = event.sequence + 1;
  kept_.push_back(std::make_shared<const Event>(std::move(event)));
  for (const auto& [id, on_event] : subscribers_) on_event(kept_.back());
}

bool FakeControl::WaitForSubscribers(size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return subscribers_.size() == count; });
}

std::vector<std::pair<uint64_t, std::string>> FakeControl::aborts() {
  const std::lock_guard lock(mutex_);
  return aborts_;
}

Snapshot SampleSnapshot(const std::vector<uid_t>& uids) {
  Snapshot snapshot;
  snapshot.core = {.boot_id = 0x0123456789abcdef,
                   .pid = 4321,
                   .uptime_ns = 90'500'000'000,
                   .version = "1.2.3",
                   .draining = false,
                   .channels = 2,
                   .sessions = static_cast<uint32_t>(uids.size()),
                   .mapped_bytes = 1 << 20,
                   .last_progress_age_ns = 1'000'000,
                   .healthy = true,
                   .health_detail = "making progress",
                   .codec_target = "AVX2",
                   .counters = {}};
  for (const uid_t uid : uids) {
    Counters counters;
    counters.ops = uid;
    counters.dense_bytes = 1000;
    counters.wire_bytes = 100;
    counters.payload_bytes = 500;
    counters.busy_ns = 1'000'000;
    counters.sends_by_format = {1, 2, 3, 4};
    counters.encode_ns = 77;
    counters.room_wait_ns = 5;
    snapshot.core.counters.ops += uid;
    const std::string job = absl::StrCat("job-", uid);
    snapshot.jobs.push_back({.id = job,
                             .uid = uid,
                             .sessions = 1,
                             .communicators = 1,
                             .buffers = 1,
                             .buffer_bytes = 4096,
                             .counters = counters});
    CommInfo comm{.id = uid,
                  .job_id = job,
                  .uid = uid,
                  .ranks = 1,
                  .state = "ready",
                  .error = "",
                  .settings = {},
                  .running_algorithm = "local",
                  .queued_ops = 0,
                  .counters = counters,
                  .last_sends = nullptr,
                  .members = {}};
    comm.members.push_back({.rank = 0, .session_id = uid, .pid = 100, .phase = "idle"});
    snapshot.comms.push_back(std::move(comm));
    snapshot.buffers.push_back({.id = uid,
                                .session_id = uid,
                                .pid = 100,
                                .uid = uid,
                                .job_id = job,
                                .kind = "mapped",
                                .size_bytes = 4096,
                                .uses = 3});
  }
  return snapshot;
}

}  // namespace spccl::daemon
