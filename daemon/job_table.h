// The batch system's jobs on this node, as its prolog has registered them. To which job a client
// belongs is what this table and the kernel say of its process, never what the client says.
//
// Thread-safe. Of the life of the machine, not of the daemon's: the jobs are kept in a file beside
// the sockets, so that a daemon that is restarted under running jobs knows them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/peer.h"

namespace spccl::daemon {

struct RegisteredJob {
  uint64_t number = 0;  // the batch system's
  uid_t uid = 0;
  std::string cgroup;  // "/system.slice/slurmstepd.scope/job_77"; empty: not known

  // As sessions and settings name it: "u1000.j77".
  std::string id() const;
  bool operator==(const RegisteredJob&) const = default;
};

class JobTable {
 public:
  static constexpr size_t kMaxJobs = 4096;
  static constexpr size_t kMaxCgroupBytes = 1024;

  // Reads the file if it is there. InvalidArgument: it holds something else; names the line.
  static absl::StatusOr<std::unique_ptr<JobTable>> Create(std::string path);

  // On disk before it returns. Once more, with another group perhaps: fine. AlreadyExists: the
  // number is another user's. InvalidArgument: number 0, or a group that is not an absolute path in
  // printable ASCII without blanks, or the root. ResourceExhausted: too many jobs.
  absl::Status Register(const RegisteredJob& job);
  // Whether it was there. It is over also where that cannot be written: then a daemon that is
  // started before the next change has it back. AlreadyExists: the number is another user's;
  // nothing has changed.
  absl::StatusOr<bool> End(uint64_t number, uid_t uid);
  std::vector<RegisteredJob> List() const;
  // Whether the job with this id() is there.
  bool Has(const std::string& id) const;

  // The registered job that a process belongs to, in this order:
  // 1. its control group is a registered one's or below it;
  // 2. (not if its group names a job already: then that is it)
  // 3. it descends from the slurmstepd of a job that is registered for its user;
  // 4. its user has a single registered job.
  // Never waits for the disk.
  std::optional<RegisteredJob> Find(const Peer& peer) const;

 private:
  explicit JobTable(std::string path) : path_(std::move(path)) {}
  // write_mutex_ is held.
  absl::Status Save(const std::map<uint64_t, RegisteredJob>& jobs) const;

  const std::string path_;
  std::mutex write_mutex_;                  // one writer at a time; taken before mutex_
  mutable std::mutex mutex_;                // of jobs_; never held over disk work
  std::map<uint64_t, RegisteredJob> jobs_;  // by number
};

}  // namespace spccl::daemon
