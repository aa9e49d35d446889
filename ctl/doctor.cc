#include "ctl/doctor.h"

#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "kernels/host/codec.h"

namespace spccl::ctl {
namespace {

constexpr int kMostComms = 4;  // whose nodes' clocks are compared

// What the daemon has answered, in so far as it did.
struct Answers {
  absl::StatusOr<v1::GetStatusResponse> status = absl::UnavailableError("not asked");
  std::vector<v1::FlightRecord> records;  // of communicators over several nodes
  int64_t took_ns = 0;                    // the longest of asking for one
};

void AskForRecords(Client& client, Answers* answers) {
  const auto comms = client.Call(&v1::Control::Stub::ListComms, v1::ListCommsRequest());
  if (!comms.ok()) return;
  int left = kMostComms;
  for (const v1::Comm& comm : comms->comms()) {
    if (comm.nodes_size() < 2 || left-- == 0) continue;
    v1::GetFlightRequest request;
    request.set_comm_id(comm.id());
    const int64_t start = MonotonicNanos();
    auto response = client.Call(&v1::Control::Stub::GetFlight, request);
    if (!response.ok()) continue;
    answers->took_ns = std::max(answers->took_ns, MonotonicNanos() - start);
    answers->records.push_back(std::move(*response->mutable_record()));
  }
}

Answers AskDaemon(const GlobalOptions& options) {
  Answers answers;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (!client.ok()) {
    answers.status = client.status();
    return answers;
  }
  answers.status = (*client)->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest());
  if (answers.status.ok()) AskForRecords(**client, &answers);
  return answers;
}

void Append(std::vector<Check> more, std::vector<Check>* checks) {
  std::move(more.begin(), more.end(), std::back_inserter(*checks));
}

std::vector<Check> CheckSockets(const std::string& runtime_dir,
                                const absl::StatusOr<Listener>& daemon) {
  const PathFacts folder = FactsOf(runtime_dir);
  const std::string session = runtime_dir + "/session.sock";
  return {CheckRuntimeDir(runtime_dir, folder,
                          daemon.ok() ? std::optional<uid_t>(daemon->uid) : std::nullopt),
          CheckSocket(session, FactsOf(session), folder, ListenerOf(session, SOCK_SEQPACKET)),
          CheckSocket(ControlSocketPath(runtime_dir), FactsOf(ControlSocketPath(runtime_dir)),
                      folder, daemon)};
}

std::vector<Check> CheckMachine(const Machine& machine, std::optional<pid_t> pid,
                                const KernelFacts& kernel, uint64_t mapped_bytes) {
  std::vector<Check> checks = {CheckMemlock(machine, pid, mapped_bytes), CheckSharedMemory(machine),
                               CheckMemory(machine), CheckHugePages(machine, kernel.collapses),
                               CheckNamespaces(machine, pid)};
  Append(CheckKernel(kernel), &checks);
  return checks;
}

std::vector<Check> CheckNetwork(const Machine& machine, const absl::StatusOr<Listener>& daemon,
                                std::optional<pid_t> pid, const DaemonConfig& config,
                                const Answers& answers) {
  const std::string peers = config.Get("peers.listen");
  const bool wanted = !peers.empty() && !peers.starts_with("127.") && !peers.starts_with("[::1]");
  std::string metrics = config.Get("metrics_listen");
  if (metrics.starts_with("unix")) metrics.clear();  // a socket, not a port
  std::vector<Check> checks = {
      CheckDevices(machine, wanted),
      CheckUcxChoice(machine, pid),
      CheckPort(machine, "peers' port", peers, daemon),
      CheckPort(machine, "metrics port", metrics, daemon),
      CheckMunge(config, ListenerOf(machine.run + "/munge/munge.socket.2", SOCK_STREAM)),
      CheckClock(AskClock()),
      CheckPeerClocks(answers.records, answers.took_ns)};
  Append(CheckCertificates(config, static_cast<int64_t>(::time(nullptr))), &checks);
  return checks;
}

}  // namespace

std::string NameOf(Verdict verdict) {
  constexpr const char* kNames[] = {"ok", "warning", "failed", "skipped"};
  return kNames[static_cast<int>(verdict)];
}

std::vector<Check> RunChecks(const GlobalOptions& options, const Machine& machine,
                             const std::string& config_path) {
  // First what forks, while there are no other threads.
  const LibraryFacts library = TryClientLibrary(options.runtime_dir, options.deadline_ns);
  const KernelFacts kernel = TryKernel();
  const absl::StatusOr<Listener> daemon =
      ListenerOf(ControlSocketPath(options.runtime_dir), SOCK_STREAM);
  const Answers answers = AskDaemon(options);
  std::optional<pid_t> pid;
  if (daemon.ok() && daemon->pid != 0) pid = daemon->pid;
  const absl::StatusOr<DaemonConfig> config = ReadDaemonConfig(machine, pid, config_path);
  const v1::Status status = answers.status.ok() ? answers.status->status() : v1::Status();

  std::vector<Check> checks = CheckSockets(options.runtime_dir, daemon);
  checks.push_back(CheckDaemon(answers.status));
  if (answers.status.ok()) checks.push_back(CheckVersion(status));
  checks.push_back(CheckClientLibrary(library, answers.status.ok(), status.draining()));
  checks.push_back(CheckCodecTarget(
      std::string(CurrentTarget()),
      answers.status.ok() ? std::optional<std::string>(status.codec_target()) : std::nullopt));
  const bool has_file = config.ok() && !config->path.empty();
  checks.push_back(CheckConfig(
      config, has_file ? AskDaemonProgram(DaemonProgram(), config->path) : absl::OkStatus()));
  Append(CheckMachine(machine, pid, kernel, status.mapped_bytes()), &checks);
  Append(CheckNetwork(machine, daemon, pid, config.value_or(DaemonConfig()), answers), &checks);
  Append(CheckSlurm(machine), &checks);
  Append(CheckGpu(machine, TryGpuLibraries(), answers.status.ok() ? &status.gpus() : nullptr),
         &checks);
  return checks;
}

}  // namespace spccl::ctl
