#include "daemon/job_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/file_io.h"

namespace spccl::daemon {
namespace {

absl::Status Check(const RegisteredJob& job) {
  if (job.number == 0) return absl::InvalidArgumentError("a job's number is not 0");
  if (job.cgroup.empty()) return absl::OkStatus();
  const bool printable = std::all_of(job.cgroup.begin(), job.cgroup.end(),
                                     [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable || job.cgroup.size() > JobTable::kMaxCgroupBytes || job.cgroup.front() != '/' ||
      job.cgroup.back() == '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("a job's cgroup is an absolute path of at most ", JobTable::kMaxCgroupBytes,
                     " printable characters, not the root and without a slash at its end"));
  }
  return absl::OkStatus();
}

absl::Status AnothersJob(const RegisteredJob& job) {
  return absl::AlreadyExistsError(
      absl::StrCat("job ", job.number, " is registered for uid ", job.uid));
}

// "77 1000 /group", or without a group.
absl::StatusOr<RegisteredJob> ParseLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  RegisteredJob job;
  if (words.size() < 2 || words.size() > 3 || !absl::SimpleAtoi(words[0], &job.number) ||
      !absl::SimpleAtoi(words[1], &job.uid)) {
    return absl::InvalidArgumentError("expected NUMBER UID [CGROUP]");
  }
  if (words.size() == 3) job.cgroup = std::string(words[2]);
  SPCCL_RETURN_IF_ERROR(Check(job));
  return job;
}

// Whether one of the process's groups (lines HIERARCHY:CONTROLLERS:/PATH) is `group` or below it.
bool IsWithin(absl::string_view cgroup_text, absl::string_view group) {
  for (const absl::string_view line : absl::StrSplit(cgroup_text, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !absl::StartsWith(fields[2], group)) continue;
    if (fields[2].size() == group.size() || fields[2][group.size()] == '/') return true;
  }
  return false;
}

}  // namespace

std::string RegisteredJob::id() const {
  return absl::StrCat("u", uid, ".j", number);
}

absl::StatusOr<std::unique_ptr<JobTable>> JobTable::Create(std::string path) {
  std::unique_ptr<JobTable> table(new JobTable(std::move(path)));
  const absl::StatusOr<std::string> text = ReadFile(table->path_);
  if (absl::IsNotFound(text.status())) return table;
  if (!text.ok()) return text.status();
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    if (line.empty()) continue;
    absl::StatusOr<RegisteredJob> job = ParseLine(line);
    if (!job.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(table->path_, ":", number, ": ", job.status().message()));
    }
    table->jobs_[job->number] = *job;
  }
  return table;
}

absl::Status JobTable::Register(const RegisteredJob& job) {
  SPCCL_RETURN_IF_ERROR(Check(job));
  const std::lock_guard write_lock(write_mutex_);
  std::map<uint64_t, RegisteredJob> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs = jobs_;
  }
  if (const auto found = jobs.find(job.number); found != jobs.end()) {
    if (found->second.uid != job.uid) return AnothersJob(found->second);
    if (found->second == job) return absl::OkStatus();
  } else if (jobs.size() >= kMaxJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("already ", kMaxJobs, " jobs are registered: end some"));
  }
  jobs[job.number] = job;
  SPCCL_RETURN_IF_ERROR(Annotate(Save(jobs), "jobs not changed"));
  const std::lock_guard lock(mutex_);
  jobs_ = std::move(jobs);
  return absl::OkStatus();
}

absl::StatusOr<bool> JobTable::End(uint64_t number, uid_t uid) {
  const std::lock_guard write_lock(write_mutex_);
  std::map<uint64_t, RegisteredJob> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs = jobs_;
  }
  const auto found = jobs.find(number);
  if (found == jobs.end()) return false;
  if (found->second.uid != uid) return AnothersJob(found->second);
  jobs.erase(found);
  // It is over, whatever the disk says.
  if (const absl::Status status = Save(jobs); !status.ok()) {
    Log(LogLevel::kWarning, "control", "an ended job is left on disk until the next change",
        {{"job", RegisteredJob{.number = number, .uid = uid, .cgroup = {}}.id()},
         {"error", std::string(status.message())}});
  }
  const std::lock_guard lock(mutex_);
  jobs_ = std::move(jobs);
  return true;
}

std::vector<RegisteredJob> JobTable::List() const {
  std::vector<RegisteredJob> list;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, job] : jobs_) list.push_back(job);
  return list;
}

bool JobTable::Has(const std::string& id) const {
  const size_t at = id.rfind(".j");
  uint64_t number = 0;
  if (at == std::string::npos || !absl::SimpleAtoi(id.substr(at + 2), &number)) return false;
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(number);
  return found != jobs_.end() && found->second.id() == id;
}

std::optional<RegisteredJob> JobTable::Find(const Peer& peer) const {
  const std::lock_guard lock(mutex_);
  const RegisteredJob* only = nullptr;
  size_t of_user = 0;
  for (const auto& [number, job] : jobs_) {
    if (job.uid != peer.uid) continue;
    if (!job.cgroup.empty() && IsWithin(peer.cgroup, job.cgroup)) return job;
    ++of_user;
    only = &job;
  }
  if (SlurmJobOf(peer.cgroup)) return std::nullopt;
  if (peer.step_job) {
    const auto found = jobs_.find(*peer.step_job);
    if (found != jobs_.end() && found->second.uid == peer.uid) return found->second;
  }
  if (of_user == 1) return *only;
  return std::nullopt;
}

absl::Status JobTable::Save(const std::map<uint64_t, RegisteredJob>& jobs) const {
  std::string text;
  for (const auto& [number, job] : jobs) {
    absl::StrAppend(&text, number, " ", job.uid, job.cgroup.empty() ? "" : " ", job.cgroup, "\n");
  }
  return ReplaceFile(path_, text);
}

}  // namespace spccl::daemon
