#include "daemon/settings_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/toml.h"
#include "base/view.h"
#include "daemon/file_io.h"
#include "daemon/settings_words.h"

namespace spccl::daemon {
namespace {

using policy::Overrides;

constexpr size_t kMaxJobIdBytes = 256;

absl::Status CheckScope(const Scope& scope) {
  const JobScope* job = std::get_if<JobScope>(&scope);
  if (job == nullptr) return absl::OkStatus();
  const bool printable = std::all_of(job->job_id.begin(), job->job_id.end(),
                                     [](char c) { return c >= 0x20 && c < 0x7f; });
  if (job->job_id.empty() || job->job_id.size() > kMaxJobIdBytes || !printable) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job id is 1 to ", kMaxJobIdBytes, " bytes of printable ASCII"));
  }
  return absl::OkStatus();
}

Overrides Without(Overrides base, SettingsPart part) {
  if (part == SettingsPart::kAll) return {};
  if (part == SettingsPart::kThresholds) base.pici = base.coo = {};
  if (part == SettingsPart::kAlgorithm) {
    base.algorithm.reset();
    base.slice_bytes.reset();
  }
  if (part == SettingsPart::kAlgorithm || part == SettingsPart::kCodec) {
    base.codec.reset();
    base.lossy.reset();
  }
  return base;
}

// "u1000." of "u1000.j77"; empty: the name is no user's.
std::string_view UserPart(std::string_view job_id) {
  const size_t dot = job_id.find_first_not_of("0123456789", 1);
  const bool is_users = job_id.starts_with('u') && dot > 1 && dot < job_id.size();
  return is_users && job_id[dot] == '.' ? job_id.substr(0, dot + 1) : "";
}

}  // namespace

absl::StatusOr<SettingsStore::Scopes> SettingsStore::Parse(std::string_view text,
                                                           std::string_view path) {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text, path));
  Scopes scopes;
  for (const TomlValue& value : values) {
    const bool global = value.path[0] == "global" && value.path.size() > 1;
    const bool job = value.path[0] == "job" && value.path.size() > 2;
    if (!global && !job) {
      return TomlError(path, value.key, absl::StrCat("unknown scope ", DottedName(value.path)));
    }
    const Scope scope = job ? Scope(JobScope{value.path[1]}) : Scope(GlobalScope{});
    if (const absl::Status status = CheckScope(scope); !status.ok()) {
      return TomlError(path, value.key,
                       std::string_view(status.message().data(), status.message().size()));
    }
    const std::string name =
        DottedName(std::vector<std::string>(value.path.begin() + (job ? 2 : 1), value.path.end()));
    Words& words = scopes[scope];
    const std::optional<std::string> wrong =
        SetWord(name, value, &words.overrides, job ? &words.share : nullptr);
    if (wrong) return TomlError(path, value.value, *wrong);
  }
  return scopes;
}

absl::StatusOr<std::unique_ptr<SettingsStore>> SettingsStore::Create(std::string state_dir,
                                                                     policy::Settings defaults,
                                                                     JobShare default_share,
                                                                     const std::string& model) {
  if (::mkdir(state_dir.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make the state directory ", state_dir));
  }
  absl::StatusOr<UniqueFd> lock = LockFolder(state_dir);
  if (!lock.ok()) return Annotate(lock.status(), "the state directory");
  const std::string path = state_dir + "/settings.toml";
  std::unique_ptr<SettingsStore> store(
      new SettingsStore(path, *std::move(lock), defaults, default_share));
  SPCCL_ASSIGN_OR_RETURN(store->models_, PlanModels::Create(state_dir, model));
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return store;
  if (!text.ok()) return text.status();
  SPCCL_ASSIGN_OR_RETURN(store->scopes_, Parse(*text, path));
  return store;
}

policy::Settings SettingsStore::Resolve(const std::string& job_id, uint64_t comm_id) const {
  const Scope job = JobScope{job_id};
  const std::lock_guard lock(mutex_);
  policy::Settings settings = defaults_;
  for (const Scope& scope : {Scope(GlobalScope{}), job}) {
    if (const auto found = scopes_.find(scope); found != scopes_.end()) {
      settings = policy::Apply(settings, found->second.overrides);
    }
  }
  const auto comm = comms_.find(comm_id);
  return comm == comms_.end() ? settings : policy::Apply(settings, comm->second);
}

JobShare SettingsStore::ShareOf(const std::string& job_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(JobScope{job_id});
  return found == scopes_.end() ? default_share_ : Apply(default_share_, found->second.share);
}

void SettingsStore::SetDefaults(const policy::Settings& defaults) {
  const std::lock_guard lock(mutex_);
  defaults_ = defaults;
  version_.fetch_add(1, std::memory_order_relaxed);
}

void SettingsStore::SetDefaultShare(const JobShare& share) {
  const std::lock_guard lock(mutex_);
  default_share_ = share;
  version_.fetch_add(1, std::memory_order_relaxed);
}

SettingsStore::Words SettingsStore::Read(const Scope& scope) const {
  const std::lock_guard lock(mutex_);
  if (const auto* comm = std::get_if<CommScope>(&scope)) {
    const auto found = comms_.find(comm->comm_id);
    return found == comms_.end() ? Words{} : Words{.overrides = found->second, .share = {}};
  }
  const auto found = scopes_.find(scope);
  return found == scopes_.end() ? Words{} : found->second;
}

policy::Overrides SettingsStore::Get(const Scope& scope) const {
  return Read(scope).overrides;
}

JobShareOverrides SettingsStore::GetShare(const std::string& job_id) const {
  return Read(JobScope{job_id}).share;
}

absl::Status SettingsStore::Set(const Scope& scope, const policy::Overrides& overrides) {
  SPCCL_RETURN_IF_ERROR(CheckScope(scope));
  SPCCL_RETURN_IF_ERROR(CheckValues(overrides));
  if (const auto* comm = std::get_if<CommScope>(&scope)) {
    const std::lock_guard lock(mutex_);
    policy::Overrides& words = comms_[comm->comm_id];
    words = Merged(words, overrides);
    version_.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  const std::lock_guard write_lock(write_mutex_);
  Words words = Read(scope);
  words.overrides = Merged(words.overrides, overrides);
  return Replace(scope, words);
}

absl::Status SettingsStore::SetShare(const std::string& job_id,
                                     const JobShareOverrides& overrides) {
  const Scope scope = JobScope{job_id};
  SPCCL_RETURN_IF_ERROR(CheckScope(scope));
  if (overrides == JobShareOverrides{}) return absl::InvalidArgumentError("nothing is set");
  if (const std::string wrong = WrongIn(overrides); !wrong.empty()) {
    return absl::InvalidArgumentError(wrong);
  }
  const std::lock_guard write_lock(write_mutex_);
  Words words = Read(scope);
  words.share = Merged(words.share, overrides);
  return Replace(scope, words);
}

absl::Status SettingsStore::Reset(const Scope& scope, SettingsPart part) {
  SPCCL_RETURN_IF_ERROR(CheckScope(scope));
  if (const auto* comm = std::get_if<CommScope>(&scope)) {
    ResetComm(comm->comm_id, part);
    return absl::OkStatus();
  }
  const std::lock_guard write_lock(write_mutex_);
  Words words = Read(scope);
  words.overrides = Without(words.overrides, part);
  return Replace(scope, words);
}

void SettingsStore::ResetComm(uint64_t comm_id, SettingsPart part) {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(comm_id);
  if (found == comms_.end()) return;
  found->second = Without(found->second, part);
  if (found->second == Overrides{}) comms_.erase(found);
  version_.fetch_add(1, std::memory_order_relaxed);
}

absl::Status SettingsStore::ResetShare(const std::string& job_id) {
  SPCCL_RETURN_IF_ERROR(CheckScope(JobScope{job_id}));
  const std::lock_guard write_lock(write_mutex_);
  Words words = Read(JobScope{job_id});
  words.share = {};
  return Replace(JobScope{job_id}, words);
}

void SettingsStore::Forget(uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  if (comms_.erase(comm_id) > 0) version_.fetch_add(1, std::memory_order_relaxed);
}

absl::Status SettingsStore::ForgetJob(const std::string& job_id) {
  const Scope scope = JobScope{job_id};
  const std::lock_guard write_lock(write_mutex_);
  return Replace(scope, {}, Put::kInAnyCase);
}

absl::Status SettingsStore::RestoreShare(const std::string& job_id,
                                         const JobShareOverrides& before) {
  const Scope scope = JobScope{job_id};
  const std::lock_guard write_lock(write_mutex_);
  Words words = Read(scope);
  words.share = before;
  return Replace(scope, words, Put::kInAnyCase);
}

template <typename Part>
size_t SettingsStore::JobsWith(Part Words::*part, std::string_view prefix) const {
  return static_cast<size_t>(std::count_if(scopes_.begin(), scopes_.end(), [&](const auto& entry) {
    const auto* const job = std::get_if<JobScope>(&entry.first);
    return job != nullptr && job->job_id.starts_with(prefix) && entry.second.*part != Part{};
  }));
}

absl::Status SettingsStore::CheckRoom(const Scope& scope, const Words& words) const {
  const auto* const job = std::get_if<JobScope>(&scope);
  if (job == nullptr) return absl::OkStatus();
  const Words before = Read(scope);
  const auto full = [](size_t most, std::string_view whose, std::string_view what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("already ", most, " jobs", View(whose), " have ", View(what), ": reset some"));
  };
  if (before.share == JobShareOverrides{} && words.share != JobShareOverrides{} &&
      JobsWith(&Words::share) >= kMaxJobs) {
    return full(kMaxJobs, "", "shares or quotas of their own");
  }
  if (before.overrides != Overrides{} || words.overrides == Overrides{}) return absl::OkStatus();
  constexpr std::string_view kSettings = "settings of their own";
  if (JobsWith(&Words::overrides) >= kMaxJobs) return full(kMaxJobs, "", kSettings);
  // One user must not take all of the others' room.
  const std::string_view user = UserPart(job->job_id);
  if (user.empty() || JobsWith(&Words::overrides, user) < kMaxJobsOfUser) return absl::OkStatus();
  return full(kMaxJobsOfUser, absl::StrCat(" of ", View(user.substr(0, user.size() - 1))),
              kSettings);
}

absl::Status SettingsStore::Replace(const Scope& scope, const Words& words, Put put) {
  if (Read(scope) == words && !behind_) return absl::OkStatus();
  if (put == Put::kOnDiskFirst) SPCCL_RETURN_IF_ERROR(CheckRoom(scope, words));
  Scopes changed = scopes_;
  if (words == Words{}) {
    changed.erase(scope);
  } else {
    changed[scope] = words;
  }
  bool replaced = false;
  absl::Status saved = Save(changed, &replaced);
  if (!saved.ok() && put == Put::kOnDiskFirst) {
    // What is refused must not be in force after a restart: the old words go over it, if not now
    // then with the next change.
    if (replaced) behind_ = !Save(scopes_, &replaced).ok();
    return saved;
  }
  behind_ = !saved.ok();
  const std::lock_guard lock(mutex_);
  scopes_.swap(changed);
  version_.fetch_add(1, std::memory_order_relaxed);
  return saved;
}

absl::Status SettingsStore::Save(const Scopes& scopes, bool* replaced) const {
  std::string text =
      "# Written by spccld; changed by `spcclctl threshold set`, `algo set`, `codec set`, `job "
      "set` "
      "and `reset`.\n";
  for (const auto& [scope, words] : scopes) {
    const JobScope* job = std::get_if<JobScope>(&scope);
    text +=
        job == nullptr ? "\n[global]\n" : absl::StrCat("\n[job.", QuoteToml(job->job_id), "]\n");
    AppendShare(words.share, &text);
    AppendOverrides(words.overrides, &text);
  }
  const absl::Status status = ReplaceFile(path_, text, 0644, replaced);
  // With nothing to say no file is needed: a full disk keeps no words of jobs that are over.
  if (!status.ok() && scopes.empty() && ::unlink(path_.c_str()) == 0) return absl::OkStatus();
  return Annotate(status, "settings not changed");
}

}  // namespace spccl::daemon
