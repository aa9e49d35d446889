// spccld: reads the configuration, starts the core and the control server, reads the configuration
// again on SIGHUP, stops on SIGTERM and SIGINT.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "collective/runtime/cuda/hardware_queues.h"
#include "daemon/config.h"
#include "daemon/control_server.h"
#include "daemon/control_server_peers.h"
#include "daemon/core.h"
#include "daemon/job_table.h"
#include "daemon/kept_descriptors.h"
#include "daemon/measure_costs.h"
#include "daemon/metrics/endpoint.h"
#include "daemon/metrics/http_server.h"
#include "daemon/notify.h"
#include "daemon/peer_nodes.h"
#include "daemon/reload.h"
#include "daemon/runtime_folder.h"
#include "daemon/settings_store.h"
#include "daemon/watchdog.h"
#include "kernels/host/codec.h"

namespace spccl::daemon {
namespace {

constexpr int kFine = 0, kWrongUse = 1, kCannotRun = 2, kStoppedAtOnce = 3;
// How long a slice in the middle may hold up the end, beyond the configured time.
constexpr int64_t kStopGraceNs = 5'000'000'000;

// What may change while it runs: see daemon/reload.h.
CoreOptions LiveOptionsOf(const Config& config) {
  CoreOptions options;
  options.op_timeout_ns = config.op_timeout_ns;
  options.init_timeout_ns = config.init_timeout_ns;
  options.stop_timeout_ns = config.stop_timeout_ns;
  options.limits.sessions = config.max_sessions;
  options.limits.communicators = config.max_communicators;
  options.limits.buffers_per_session = config.max_buffers_per_client;
  options.limits.buffer_bytes_per_session = config.max_buffer_bytes_per_client;
  return options;
}

CoreOptions OptionsOf(const Config& config) {
  CoreOptions options = LiveOptionsOf(config);
  options.runtime_dir = config.runtime_dir;
  options.channels = config.channels;
  options.pin = config.pin;
  options.stall_limit_ns = config.stall_limit_ns;
  if (!config.peers_listen.empty()) options.costs = MeasureCosts();
  options.machine = MachineId();
  options.flight = {.operations = config.flight_operations,
                    .spans = config.flight_spans,
                    .folder = config.state_dir + "/flight",
                    .files = config.flight_files,
                    .bytes = config.flight_file_bytes};
  return options;
}

// What is opened later must not be taken for standard output or error, whatever of them whoever
// started this has closed.
void HoldStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // the lowest that is free
  }
}

// A session takes five descriptors; the usual soft limit of 1,024 is soon reached.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max - DescriptorsToKeep(limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Below which gRPC aborts, or nobody could connect.
absl::Status CheckDescriptorLimit() {
  constexpr rlim_t kLeast = 32;
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the process may have ", limit.rlim_cur,
                                                   " descriptors open (RLIMIT_NOFILE), expected ",
                                                   kLeast, " at least"));
}

// Signals, blocked in every thread, so that the main thread takes them one by one.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGTERM);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a file that may be no larger is an error of that write: EFBIG
  }
  // The next one; 0: none has come within the time.
  int Await(int64_t timeout_ns) const {
    constexpr int64_t kSecond = 1'000'000'000;
    const timespec limit{.tv_sec = timeout_ns / kSecond, .tv_nsec = timeout_ns % kSecond};
    return std::max(0, ::sigtimedwait(&set_, nullptr, &limit));
  }
  // Whether one more has come that says stop.
  bool StopTaken() const {
    for (;;) {
      const int signal = Await(0);
      if (signal != SIGHUP) return signal != 0;
    }
  }

 private:
  sigset_t set_;
};

// Of the connections to other nodes' daemons.
peers::PeerNetOptions PeerOptionsOf(const Config& config) {
  peers::PeerNetOptions options;
  options.listen = config.peers_listen;
  options.advertise = config.peers_advertise;
  options.tls = {
      .ca = config.peers_tls_ca, .certificate = config.peers_tls_cert, .key = config.peers_tls_key};
  options.munge = config.peers_munge;
  options.version = kVersion;
  options.heartbeat_interval_ns = config.peers_heartbeat_ns;
  return options;
}

// nullptr: the configuration wants none.
absl::StatusOr<std::unique_ptr<metrics::HttpServer>> ServeMetrics(const Config& config,
                                                                  Core* core) {
  if (config.metrics_listen.empty()) return nullptr;
  metrics::HttpOptions options;
  SPCCL_ASSIGN_OR_RETURN(options.address, metrics::ParseListenAddress(config.metrics_listen));
  SPCCL_ASSIGN_OR_RETURN(const std::optional<gid_t> group, ResolveGroup(config.admin_group));
  options.admits = [group](int socket) {
    const absl::StatusOr<Caller> caller = CallerOf(socket, group);
    return caller.ok() && caller->administrator;
  };
  if (options.address.is_unix && options.address.path.empty()) {
    options.address.path = config.runtime_dir + "/metrics.sock";
  }
  const bool is_open = metrics::IsOpen(options.address);
  metrics::Source source{.version = kVersion,
                         .codec_target = std::string(CurrentTarget()),
                         .core = [core] { return core->GetCoreSample(); },
                         .progress = [core] { return core->GetProgress(); }};
  SPCCL_ASSIGN_OR_RETURN(
      std::unique_ptr<metrics::HttpServer> server,
      metrics::HttpServer::Create(std::move(options), metrics::MakeEndpoint(std::move(source))));
  Log(is_open ? LogLevel::kWarning : LogLevel::kInfo, "metrics",
      is_open ? "serving metrics to other machines, to whoever asks" : "serving metrics",
      {{"address", server->address()}});
  return server;
}

// Only GPUs that are there, and should be used, are worth a warning: most nodes without have no
// driver either.
void LogUnused(const GpuFacts& facts) {
  if (facts.use != GpusUsed::kUnusable) {
    Log(LogLevel::kInfo, "gpu", "no GPU is used", {{"reason", facts.unused}});
    return;
  }
  Log(LogLevel::kWarning, "gpu", "GPUs are not used: their memory is copied through the host",
      {{"reason", facts.unused}, {"advice", facts.advice}});
}

// nullptr: there are none, or they cannot be used, which is no reason not to serve host memory.
std::unique_ptr<runtime::Gpus> OpenGpus(const Config& config, GpuFacts* facts) {
  if (config.gpu_enabled == GpuUse::kOff) {
    facts->use = GpusUsed::kOff;
    facts->unused = "gpu.enabled is off";
    LogUnused(*facts);
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<runtime::Gpus>> gpus = runtime::Gpus::Open(
      {.driver_library = config.gpu_driver, .codec_library = config.gpu_kernels});
  if (!gpus.ok()) {
    *facts = LookAtRefusal(gpus.status(), !config.gpu_driver.empty());
    LogUnused(*facts);
    return nullptr;
  }
  *facts = LookAtGpus(**gpus);
  for (size_t i = 0; i < (*gpus)->count(); ++i) {
    Log(LogLevel::kInfo, "gpu", "a GPU is used",
        {{"gpu", GpuName((*gpus)->at(i).uuid())}, {"name", (*gpus)->at(i).name()}});
  }
  return *std::move(gpus);
}

// Has the nodes use the GPUs for what is between them.
void JoinGpus(const Config& config, runtime::Gpus* gpus, Nodes* nodes, GpuFacts* facts) {
  if (nodes == nullptr) return;
  if (gpus == nullptr) return nodes->UseNoGpus(facts->unused);
  if (config.gpu_between_nodes == GpuRoute::kHost) {
    facts->nccl = "not used: gpu.between_nodes is host";
    Log(LogLevel::kInfo, "gpu", "frames between nodes go through the host",
        {{"nccl", facts->nccl}});
    return nodes->UseNoGpus(facts->nccl);
  }
  auto library = LoadNccl(config.gpu_nccl, facts);
  const bool is_missed = library == nullptr && !config.gpu_nccl.empty();
  Log(is_missed ? LogLevel::kWarning : LogLevel::kInfo, "gpu",
      library != nullptr ? "frames go from GPU to GPU where all nodes have NCCL"
                         : "frames between nodes go through the host",
      {{"nccl", facts->nccl}});
  if (library == nullptr) return nodes->UseNoGpus(facts->nccl);
  nodes->UseGpus(gpus, std::move(library));
}

struct Parts {
  std::unique_ptr<SettingsStore> settings;
  std::unique_ptr<JobTable> jobs;
  // nullptr: none are used. Outlives the nodes, whose links may still have frames of theirs.
  std::unique_ptr<runtime::Gpus> gpus;
  std::unique_ptr<Nodes> nodes;  // nullptr: none are talked to
  std::unique_ptr<Core> core;
  std::unique_ptr<ControlServer> control;
  std::unique_ptr<metrics::HttpServer> metrics;  // nullptr: there is none
};

absl::StatusOr<Parts> StartParts(const Config& config) {
  Parts parts;
  SPCCL_RETURN_IF_ERROR(CheckDescriptorLimit());
  SPCCL_RETURN_IF_ERROR(MakeRuntimeFolder(config.runtime_dir));
  SPCCL_ASSIGN_OR_RETURN(parts.settings,
                         SettingsStore::Create(config.state_dir, config.settings, config.job_share,
                                               config.tuning_model));
  SPCCL_ASSIGN_OR_RETURN(parts.jobs, JobTable::Create(config.runtime_dir + "/jobs"));
  if (!config.peers_listen.empty()) {
    SPCCL_ASSIGN_OR_RETURN(parts.nodes, CreatePeerNodes(PeerOptionsOf(config)));
  }
  CoreOptions options = OptionsOf(config);
  if (const auto model = parts.settings->models().Current(); model && options.channels == 0) {
    options.channels = model->channels;
  }
  parts.gpus = OpenGpus(config, &options.gpus);
  JoinGpus(config, parts.gpus.get(), parts.nodes.get(), &options.gpus);
  SPCCL_ASSIGN_OR_RETURN(parts.core, Core::Create(std::move(options),
                                                  HooksOf(parts.settings.get(), parts.jobs.get(),
                                                          parts.gpus.get(), config.gpu_multipath),
                                                  parts.nodes.get()));
  ControlServerOptions control;
  control.runtime_dir = config.runtime_dir;
  control.admin_group = config.admin_group;
  SPCCL_ASSIGN_OR_RETURN(parts.control,
                         ControlServer::Create(std::move(control), parts.core.get(),
                                               parts.settings.get(), parts.jobs.get()));
  SPCCL_ASSIGN_OR_RETURN(parts.metrics, ServeMetrics(config, parts.core.get()));
  return parts;
}

// Threads, and what libraries make, throw where there are none.
absl::StatusOr<Parts> Start(const Config& config) {
  try {
    return StartParts(config);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(error.what());
  }
}

// Reads the configuration once more and puts it in force, whole or not at all.
absl::Status Reload(int argc, const char* const* argv, const Parts& parts, CommandLine* line) {
  SPCCL_ASSIGN_OR_RETURN(CommandLine next, ParseCommandLine(argc, argv, kVersion));
  SPCCL_RETURN_IF_ERROR(CheckReload(*line, next));
  SPCCL_RETURN_IF_ERROR(parts.core->Reconfigure(LiveOptionsOf(next.config)));
  *line = std::move(next);
  const Config& config = line->config;
  ConfigureLog(config.log_level, config.log_format);
  parts.settings->SetDefaults(config.settings);
  parts.settings->SetDefaultShare(config.job_share);
  parts.core->RefreshShares();
  return absl::OkStatus();
}

void OnHangup(int argc, const char* const* argv, const Parts& parts, CommandLine* line) {
  notify::Reloading();
  const absl::Status status = Reload(argc, argv, parts, line);
  const std::string reason(status.message());
  Log(status.ok() ? LogLevel::kInfo : LogLevel::kError, "main",
      status.ok() ? "configuration read again" : "configuration not changed",
      {{"reason", status.ok() ? "SIGHUP" : reason}});
  notify::Ready(status.ok() ? "serving" : absl::StrCat("serving; reload refused: ", reason));
}

// Returns when it is told to stop.
void Serve(int argc, const char* const* argv, const Signals& signals, const Parts& parts,
           Watchdog* watchdog, CommandLine* line) {
  for (;;) {
    const int signal = signals.Await(watchdog->Turn(MonotonicNanos()));
    if (signal == SIGHUP) {
      OnHangup(argc, argv, parts, line);
    } else if (signal != 0) {
      return;
    }
  }
}

// Ends the process here if a second signal comes, or if a slice never ends.
void Stop(const Config& config, const Signals& signals, Watchdog* watchdog, const Parts& parts) {
  Log(LogLevel::kInfo, "main", "stopping: running operations may end");
  notify::Stopping(config.stop_timeout_ns + 2 * kStopGraceNs);
  parts.core->BeginStop();
  constexpr int64_t kStepNs = 20'000'000;
  int64_t waited_ns = 0;
  while (!parts.core->WaitStopped(kStepNs)) {
    waited_ns += kStepNs;
    watchdog->Turn(MonotonicNanos());
    const bool hurry = signals.StopTaken();
    if (!hurry && waited_ns < config.stop_timeout_ns + kStopGraceNs) continue;
    Log(LogLevel::kWarning, "main",
        hurry ? "second signal: stopping at once" : "a channel thread does not end: leaving it");
    parts.control->RemoveSocket();
    if (parts.metrics != nullptr) parts.metrics->RemoveSocket();
    FlushLog();
    std::_Exit(kStoppedAtOnce);
  }
}

// To give back what a GPU has waits for its work, which may never end where the GPU has failed: the
// process's end does it. The peers are told as ever.
void LeaveFailedGpus(const Parts& parts) {
  for (size_t i = 0; parts.gpus != nullptr && i < parts.gpus->count(); ++i) {
    if (parts.gpus->at(i).status().ok()) continue;
    Log(LogLevel::kWarning, "main", "a GPU has failed: leaving its memory to the process's end");
    if (parts.nodes != nullptr) parts.nodes->Stop();
    FlushLog();
    std::_Exit(kFine);
  }
}

// What was asked for is printed, or not: a full disk must not pass for a printed configuration.
int Answer(const std::string& output) {
  if (std::fputs(output.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return kFine;
  const absl::Status status = ErrnoStatus(errno, "standard output could not be written");
  std::fprintf(stderr, "spccld: %s\n", std::string(status.message()).c_str());
  return kCannotRun;
}

int Main(int argc, const char* const* argv) {
  HoldStandardDescriptors();
  absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv, kVersion);
  if (!line.ok()) {
    std::fprintf(stderr, "spccld: %s\n", std::string(line.status().message()).c_str());
    return kWrongUse;
  }
  if (!line->run) return Answer(line->output);
  const Config& config = line->config;
  ConfigureLog(config.log_level, config.log_format);
  RaiseDescriptorLimit();
  // gRPC's other resolver (c-ares) loses some bytes at each look-up, and does not read
  // nsswitch.conf.
  ::setenv("GRPC_DNS_RESOLVER", "native", 0);  // no other thread reads the environment yet
  // Streams wait for ranks. They must have queues of the hardware of their own, and no kernel may
  // be loaded by its first launch, which can wait for all that the context does.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(runtime::kHardwareQueues).c_str(), 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // The order of launches differs from node to node here (docs/adr/0021).
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  const Signals signals;
  absl::StatusOr<Parts> parts = Start(config);
  if (!parts.ok()) {
    Log(LogLevel::kError, "main", "cannot start",
        {{"reason", std::string(parts.status().message())}});
    return kCannotRun;
  }
  Log(LogLevel::kInfo, "main", "serving",
      {{"version", kVersion}, {"socket", SessionSocketPath(config.runtime_dir)}});
  notify::Ready("serving");
  Watchdog watchdog([core = parts->core.get()] { return core->GetProgress(); },
                    notify::WatchdogLimitNanos());
  Serve(argc, argv, signals, *parts, &watchdog, &*line);
  Stop(config, signals, &watchdog, *parts);
  parts->metrics.reset();
  parts->control.reset();
  Log(LogLevel::kInfo, "main", "stopped");
  LeaveFailedGpus(*parts);
  return kFine;
}

}  // namespace
}  // namespace spccl::daemon

int main(int argc, char** argv) {
  const int code = spccl::daemon::Main(argc, argv);
  spccl::FlushLog();
  return code;
}
