// A core that holds what a test puts into it. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control.h"
#include "proto/spccl/v1/flight.pb.h"

namespace spccl::daemon {

class FakeControl final : public Control {
 public:
  absl::StatusOr<Snapshot> GetSnapshot() override;
  // What SetFlight() has set last.
  absl::StatusOr<v1::FlightRecord> GetFlight(uint64_t comm_id, bool spans) override;
  // As the snapshot says.
  Progress GetProgress() override;
  absl::Status AbortComm(uint64_t comm_id, const std::string& reason) override;
  // Takes the job and its sessions out of the snapshot.
  absl::StatusOr<EndedJob> EndJob(const std::string& job_id) override;
  void RefreshShares() override;
  absl::Status SetDraining(bool draining) override;
  void RecordEvent(Event event) override { Emit(std::move(event)); }
  std::unique_ptr<Subscription> Subscribe(uint64_t from_sequence, OnEvent on_event) override;

  // Changes what GetSnapshot() answers.
  void Update(const std::function<void(Snapshot*)>& change);
  // Once GetSnapshot() has answered so many times more, it, AbortComm(), EndJob() and SetDraining()
  // answer with this, unless it is OK.
  void Fail(absl::Status status, int after = 0);
  // Lets GetSnapshot() answer so many times more and hang then, for ten seconds at most, until
  // AnswerAll().
  void AnswerOnly(int count);
  void AnswerAll();
  void SetFlight(v1::FlightRecord record);
  // Keeps the event, with the next sequence number plus `skip`, and tells it to all subscribers.
  void Emit(Event event, uint64_t skip = 0);
  // Blocks until there are so many subscribers; false after ten seconds.
  bool WaitForSubscribers(size_t count);
  std::vector<std::pair<uint64_t, std::string>> aborts();
  int refreshes();  // of the shares, so far

 private:
  class Subscriber;
  absl::Status FailureLocked() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  Snapshot snapshot_;
  absl::Status failure_;
  int answers_before_failure_ = 0;
  int answers_left_ = -1;                         // negative: no limit
  std::map<uint64_t, v1::FlightRecord> flights_;  // by communicator
  std::vector<std::pair<uint64_t, std::string>> aborts_;
  int refreshes_ = 0;
  std::vector<EventPtr> kept_;
  uint64_t next_sequence_ = 1, next_subscriber_ = 1;
  std::map<uint64_t, OnEvent> subscribers_;
};

// A healthy core with a job, a communicator (id uid), a buffer and a session of each of the uids;
// the job's id is "job-UID".
Snapshot SampleSnapshot(const std::vector<uid_t>& uids);

}  // namespace spccl::daemon
