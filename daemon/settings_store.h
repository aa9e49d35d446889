// The settings of every scope, live, and kept over a restart.
//
// Jobs' shares and quotas as well: apart from the settings, as only administrators may change them.
//
// Thread-safe. Scopes: global, job (by id), communicator (by id; lives as long as the communicator
// and is not kept: ids are not reused over restarts). Resolve(), Get(), ShareOf(), Forget() and
// whatever is of a communicator never wait for the disk, nor for who writes to it: the core calls
// them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "collective/policy/settings.h"
#include "daemon/job_share.h"
#include "daemon/plan_models.h"

namespace spccl::daemon {

struct GlobalScope {
  auto operator<=>(const GlobalScope&) const = default;
};
struct JobScope {
  std::string job_id;
  auto operator<=>(const JobScope&) const = default;
};
struct CommScope {
  uint64_t comm_id;
  auto operator<=>(const CommScope&) const = default;
};
using Scope = std::variant<GlobalScope, JobScope, CommScope>;

// kAlgorithm: and the codec, without which it was never set; kCodec: and whether sends are lossy.
enum class SettingsPart { kAll, kThresholds, kAlgorithm, kCodec };

class SettingsStore {
 public:
  // `defaults` come from the configuration. Makes state_dir if it is missing and takes it for this
  // store: a second one, of any process, gets FailedPrecondition, which names the first's. Reads
  // state_dir/settings.toml if it is there; a file that does not parse is an error that names its
  // line, never ignored.
  // `model`: a file of what has been learned of plans; empty: none.
  static absl::StatusOr<std::unique_ptr<SettingsStore>> Create(std::string state_dir,
                                                               policy::Settings defaults,
                                                               JobShare default_share = {},
                                                               const std::string& model = "");

  // What has been learned of plans; of the whole, and for algorithms that no scope sets.
  PlanModels& models() { return *models_; }

  // What an operation of this communicator runs with, now.
  policy::Settings Resolve(const std::string& job_id, uint64_t comm_id) const;
  // Another one after each change of what Resolve(), Get() and ShareOf() say.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  policy::Overrides Get(const Scope& scope) const;
  // Merges what `overrides` sets into the scope; written to disk whole (a new file, synced,
  // renamed) before it takes effect, or not at all; not written where nothing changes.
  // InvalidArgument: a threshold outside [0, 1], a slice size outside 4 KiB to 1 GiB that is not 0,
  // or a job id that is empty, longer than 256 bytes or not printable ASCII. ResourceExhausted:
  // more than kMaxJobs jobs with settings of their own, or kMaxJobsOfUser whose names are one
  // user's, or the disk is full.
  // (All jobs that there may be, with the longest words, are a file that ReadFile() takes.)
  static constexpr size_t kMaxJobs = 4096, kMaxJobsOfUser = 256;
  absl::Status Set(const Scope& scope, const policy::Overrides& overrides);
  // From now on what no scope says otherwise is as in these.
  void SetDefaults(const policy::Settings& defaults);
  // Forgets what the scope says, all of it or a part. InvalidArgument: a job id as above.
  absl::Status Reset(const Scope& scope, SettingsPart part = SettingsPart::kAll);
  // A communicator is gone.
  void Forget(uint64_t comm_id);
  // A job is over: forgets its settings and its share, from now on in any case. An error: they are
  // on disk still; the next change of anything that is kept, or the next call of this, for whatever
  // job, takes them from there.
  absl::Status ForgetJob(const std::string& job_id);

  // What a job gets and may take, now.
  JobShare ShareOf(const std::string& job_id) const;
  JobShareOverrides GetShare(const std::string& job_id) const;
  // As Set(). InvalidArgument: a value is out of its range, or nothing is set. ResourceExhausted:
  // more than kMaxJobs jobs with shares of their own, counted apart from those with settings: what
  // users set takes no room from what administrators give.
  absl::Status SetShare(const std::string& job_id, const JobShareOverrides& overrides);
  absl::Status ResetShare(const std::string& job_id);
  // Takes a SetShare() back, to what GetShare() had said before; in any case, as ForgetJob().
  absl::Status RestoreShare(const std::string& job_id, const JobShareOverrides& before);
  void SetDefaultShare(const JobShare& share);

 private:
  // What a scope says.
  struct Words {
    policy::Overrides overrides;
    JobShareOverrides share;  // of jobs only
    bool operator==(const Words&) const = default;
  };
  using Scopes = std::map<Scope, Words>;  // without communicators

  SettingsStore(std::string path, UniqueFd lock, policy::Settings defaults, JobShare default_share)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        defaults_(defaults),
        default_share_(default_share) {}
  static absl::StatusOr<Scopes> Parse(std::string_view text, std::string_view path);
  Words Read(const Scope& scope) const;
  void ResetComm(uint64_t comm_id, SettingsPart part);
  // kInAnyCase: also where they cannot be written.
  enum class Put { kOnDiskFirst, kInAnyCase };
  // Puts the new words of a scope that is kept in place, on disk first. write_mutex_ is held.
  absl::Status Replace(const Scope& scope, const Words& words, Put put = Put::kOnDiskFirst);
  // Whether there may be one job more of such words. write_mutex_ is held.
  absl::Status CheckRoom(const Scope& scope, const Words& words) const;
  // How many jobs whose names begin so have words of this kind. write_mutex_ is held.
  template <typename Part>
  size_t JobsWith(Part Words::*part, std::string_view prefix = "") const;
  // `replaced`: set where the file holds them now, error or not.
  absl::Status Save(const Scopes& scopes, bool* replaced) const;

  const std::string path_;
  const UniqueFd lock_;  // of the state directory
  std::unique_ptr<PlanModels> models_;
  std::mutex write_mutex_;    // one writer of the file at a time; taken before mutex_
  bool behind_ = false;       // the file may say something else; write_mutex_ is held
  mutable std::mutex mutex_;  // of what is below; never held over disk work
  policy::Settings defaults_;
  JobShare default_share_;
  Scopes scopes_;  // written with both held, so that either is enough to read it
  std::map<uint64_t, policy::Overrides> comms_;
  // Written with mutex_ held, by which whoever sees it sees the change too: relaxed.
  std::atomic<uint64_t> version_{0};
};

}  // namespace spccl::daemon
