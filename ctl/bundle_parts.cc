#include "ctl/bundle_parts.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ctl/client.h"
#include "ctl/fetch.h"
#include "ctl/render.h"
#include "proto/spccl/v1/flight_file.h"

namespace spccl::ctl {
namespace {

constexpr size_t kMostEvents = 10'000, kMostFlightFiles = 32, kMostJobs = 64;

std::string Pretty(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

template <typename Request, typename Response>
absl::StatusOr<std::string> AskFor(Client& client,
                                   grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                                   const Request& request) {
  SPCCL_ASSIGN_OR_RETURN(const Response response, client.Call(method, request));
  return Pretty(ToJson(response));
}

// The settings that hold for all jobs, and in each of those there are.
absl::StatusOr<std::string> SettingsText(Client& client) {
  v1::GetSettingsRequest request;
  request.mutable_scope()->mutable_global();
  SPCCL_ASSIGN_OR_RETURN(const v1::GetSettingsResponse global,
                         client.Call(&v1::Control::Stub::GetSettings, request));
  nlohmann::ordered_json all = {{"global", ToJson(global)}};
  SPCCL_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs,
                         client.Call(&v1::Control::Stub::ListJobs, v1::ListJobsRequest()));
  size_t left = kMostJobs;
  for (const v1::Job& job : jobs.jobs()) {
    if (left-- == 0) break;
    request.mutable_scope()->set_job_id(job.id());
    const auto settings = client.Call(&v1::Control::Stub::GetSettings, request);
    if (settings.ok()) all["jobs"][job.id()] = ToJson(*settings);
  }
  return Pretty(all);
}

absl::StatusOr<std::string> EventsText(Client& client, const GlobalOptions& options) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::nanoseconds(options.deadline_ns));
  v1::StreamEventsRequest request;
  request.set_from_sequence(1);
  const auto reader = client.stub()->StreamEvents(&context, request);
  std::string text;
  v1::StreamEventsResponse response;
  for (size_t count = 0; count < kMostEvents && reader->Read(&response); ++count) {
    absl::StrAppend(&text, ToJson(response).dump(), "\n");
  }
  context.TryCancel();  // of what is beyond
  const grpc::Status status = reader->Finish();
  if (!status.ok() && text.empty()) return client.Check(status);
  return text;
}

// The newest records that the daemon has kept. The folder is the daemon's and we may be root: what
// a link there names, or what is no record, is not ours to give away.
void AddFlightFiles(const std::string& folder, Bundle* bundle) {
  const UniqueFd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!open.valid()) return bundle->Add("flight", ErrnoStatus(errno, folder));
  const std::vector<std::string> names = NamesIn(folder);
  size_t records = 0, others = 0;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {  // by age, the newest first
    if (!flight::IsFileName(*name)) {
      ++others;
    } else if (++records <= kMostFlightFiles) {
      bundle->AddFile("flight/" + *name, absl::StrCat(folder, "/", *name), Part::kHead,
                      Links::kRefuse);
    }
  }
  if (others > 0) {
    bundle->Add("flight/others", absl::InvalidArgumentError(absl::StrCat(
                                     "left out: ", others, " not named as flight records are")));
  }
  if (records > kMostFlightFiles) {
    bundle->Add("flight/older", absl::ResourceExhaustedError(absl::StrCat(
                                    "left out: ", records - kMostFlightFiles, " older records")));
  }
}

// The variables that change what the daemon and its libraries do; no others are anybody's business.
absl::StatusOr<std::string> VariablesOf(const Machine& machine, pid_t pid) {
  const auto environment = EnvironmentOf(machine, pid);
  if (!environment) return absl::PermissionDeniedError("the environment cannot be read");
  std::string text;
  for (const auto& [name, value] : *environment) {
    for (const char* prefix : {"UCX_", "SPCCL_", "GRPC_", "MALLOC_", "LD_LIBRARY_PATH"}) {
      if (name.starts_with(prefix)) absl::StrAppend(&text, name, "=", value, "\n");
    }
  }
  return text;
}

void AddProcess(const Machine& machine, pid_t pid, Bundle* bundle) {
  const std::string folder = absl::StrCat(machine.proc, "/", pid);
  const auto arguments = ArgumentsOf(machine, pid);
  bundle->Add("daemon/arguments.txt",
              arguments ? absl::StatusOr<std::string>(absl::StrJoin(*arguments, "\n") + "\n")
                        : absl::PermissionDeniedError("the arguments cannot be read"));
  bundle->Add("daemon/variables.txt", VariablesOf(machine, pid));
  for (const char* name : {"limits", "status", "cgroup", "smaps_rollup"}) {
    bundle->AddFile(absl::StrCat("daemon/", name, ".txt"), absl::StrCat(folder, "/", name));
  }
  // Its standard error output, where that is a file.
  bundle->AddFile("daemon/log.txt", folder + "/fd/2", Part::kTail);
}

// What slurm.conf says of scripts; the rest is the site's own.
absl::StatusOr<std::string> HookLines(const std::string& path) {
  SPCCL_ASSIGN_OR_RETURN(const std::string conf, ReadFile(path, Bundle::kMostPartBytes));
  std::string text;
  for (absl::string_view line : absl::StrSplit(conf, '\n')) {
    if (absl::StrContains(line, "rolog") || absl::StrContains(line, "pilog")) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

absl::StatusOr<std::string> KernelText() {
  utsname names;
  if (::uname(&names) != 0) return ErrnoStatus(errno, "uname");
  return absl::StrCat(names.sysname, " ", names.nodename, " ", names.release, " ", names.version,
                      " ", names.machine, "\n");
}

absl::StatusOr<std::string> SharedMemoryText(const Machine& machine) {
  struct statvfs info;
  if (::statvfs(machine.shm.c_str(), &info) != 0) return ErrnoStatus(errno, machine.shm);
  std::string text =
      absl::StrCat(machine.shm, ": ", static_cast<uint64_t>(info.f_bavail) * info.f_frsize,
                   " bytes free of ", static_cast<uint64_t>(info.f_blocks) * info.f_frsize, "\n");
  for (const std::string& name : NamesIn(machine.shm)) absl::StrAppend(&text, name, "\n");
  return text;
}

}  // namespace

void AddAnswers(const GlobalOptions& options, Bundle* bundle) {
  using Stub = v1::Control::Stub;
  const absl::StatusOr<std::unique_ptr<Client>> connected = Client::Connect(options);
  if (!connected.ok()) {
    for (const char* name : {"status", "jobs", "comms", "buffers", "settings", "events"}) {
      bundle->Add(absl::StrCat("daemon/", name, ".json"), connected.status());
    }
    return;
  }
  Client& client = **connected;
  bundle->Add("daemon/status.json", AskFor(client, &Stub::GetStatus, v1::GetStatusRequest()));
  bundle->Add("daemon/jobs.json", AskFor(client, &Stub::ListJobs, v1::ListJobsRequest()));
  bundle->Add("daemon/comms.json", AskFor(client, &Stub::ListComms, v1::ListCommsRequest()));
  bundle->Add("daemon/buffers.json", AskFor(client, &Stub::ListBuffers, v1::ListBuffersRequest()));
  bundle->Add("daemon/settings.json", SettingsText(client));
  bundle->Add("daemon/events.json", EventsText(client, options));
}

void AddDaemonFiles(const GlobalOptions& options, const Machine& machine,
                    std::optional<pid_t> daemon, const absl::StatusOr<DaemonConfig>& config,
                    Bundle* bundle) {
  const Bounds bounds{.bytes = Bundle::kMostPartBytes, .nanos = options.deadline_ns};
  const DaemonConfig known = config.value_or(DaemonConfig());
  bundle->Add("daemon/config.txt",
              config.ok() ? absl::StatusOr<std::string>(config->Text()) : config.status());
  bundle->Add("daemon/metrics.txt",
              FetchMetrics(known.Get("metrics_listen", "unix"), options.runtime_dir, bounds));
  if (daemon) AddProcess(machine, *daemon, bundle);
  bundle->Add("daemon/journal.txt", OutputOf({"journalctl", "-u", "spccld", "-n", "5000",
                                              "--no-pager", "-o", "short-iso"},
                                             bounds));
  const std::string state = known.Get("state_dir", "/var/lib/spccl");
  bundle->AddFile("daemon/settings.toml", state + "/settings.toml", Part::kHead, Links::kRefuse);
  AddFlightFiles(state + "/flight", bundle);
  bundle->AddFile("slurm/spccl.conf", machine.etc + "/spccl/slurm.conf");
  bundle->Add("slurm/hooks.txt", HookLines(machine.etc + "/slurm/slurm.conf"));
  bundle->AddFile("slurm/spccld.log", machine.run + "/spccl-slurm/spccld.log", Part::kTail);
}

void AddMachineFiles(const Machine& machine, Bundle* bundle) {
  bundle->Add("machine/kernel.txt", KernelText());
  bundle->AddFile("machine/os-release", machine.etc + "/os-release");
  for (const char* name : {"cmdline", "cpuinfo", "meminfo", "mounts", "net/dev", "net/sockstat",
                           "self/limits", "self/cgroup", "driver/nvidia/version"}) {
    bundle->AddFile(absl::StrCat("machine/proc/", name), absl::StrCat(machine.proc, "/", name));
  }
  bundle->AddFile("machine/shmem_enabled",
                  machine.sys + "/kernel/mm/transparent_hugepage/shmem_enabled");
  bundle->Add("machine/shm.txt", SharedMemoryText(machine));
  const Bounds bounds{.bytes = Bundle::kMostPartBytes};
  bundle->Add("machine/lscpu.txt", OutputOf({"lscpu"}, bounds));
  bundle->Add("machine/lstopo.xml", OutputOf({"lstopo-no-graphics", "--of", "xml"}, bounds));
  bundle->Add("machine/ip.txt", OutputOf({"ip", "-s", "address"}, bounds));
  bundle->Add("machine/nvidia-smi.txt", OutputOf({"nvidia-smi"}, bounds));
}

}  // namespace spccl::ctl
