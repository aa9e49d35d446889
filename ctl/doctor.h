// The checks of `spcclctl doctor`: each says what was found, why it matters, and what to do. Each
// is a function of facts that it is given, or of files below the folders of a Machine; only
// RunChecks() asks the daemon and tries things.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/daemon_config.h"
#include "ctl/machine.h"
#include "ctl/probe.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/spccl/v1/control.pb.h"

namespace spccl::ctl {

struct GlobalOptions;  // ctl/context.h

// Skipped: there is nothing to check here, or no right to look.
enum class Verdict { kOk, kWarning, kFailed, kSkipped };
std::string NameOf(Verdict verdict);  // "ok", "warning", "failed", "skipped"

struct Check {
  std::string name;
  Verdict verdict;
  std::string found;
  std::string why;
  std::string remedy;  // empty where nothing need be done
};

// The daemon's sockets, who listens there, and what it says of itself. doctor_daemon.cc
Check CheckRuntimeDir(const std::string& runtime_dir, const PathFacts& facts,
                      std::optional<uid_t> daemon);
Check CheckSocket(const std::string& path, const PathFacts& facts, const PathFacts& folder,
                  const absl::StatusOr<Listener>& listener);
Check CheckDaemon(const absl::StatusOr<v1::GetStatusResponse>& answer);
Check CheckVersion(const v1::Status& status);
// `reached`: whether the daemon answers this tool, so that the library is to blame if it does not.
Check CheckClientLibrary(const LibraryFacts& library, bool reached, bool draining);
Check CheckCodecTarget(const std::string& here, const std::optional<std::string>& daemon);
// `judged`: what the daemon's program says of the file (AskDaemonProgram).
Check CheckConfig(const absl::StatusOr<DaemonConfig>& config, const absl::Status& judged);

// What the daemon runs on. doctor_machine.cc
// `mapped_bytes`: what the daemon maps for clients now.
Check CheckMemlock(const Machine& machine, std::optional<pid_t> daemon, uint64_t mapped_bytes);
Check CheckSharedMemory(const Machine& machine);
Check CheckMemory(const Machine& machine);
Check CheckHugePages(const Machine& machine, bool collapses);
Check CheckNamespaces(const Machine& machine, std::optional<pid_t> daemon);
// By the errors of the attempts, 0: it worked.
std::vector<Check> CheckKernel(const KernelFacts& facts);

// What reaches other nodes. doctor_network.cc
// `wanted`: whether the daemon is configured to talk to other machines.
Check CheckDevices(const Machine& machine, bool wanted);
Check CheckUcxChoice(const Machine& machine, std::optional<pid_t> daemon);
// `name` of the check, `address` as the configuration has it: HOST:PORT, or empty.
Check CheckPort(const Machine& machine, const std::string& name, const std::string& address,
                const absl::StatusOr<Listener>& daemon);
// `listener`: who listens at munged's usual socket.
Check CheckMunge(const DaemonConfig& config, const absl::StatusOr<Listener>& listener);
Check CheckClock(const ClockFacts& facts);
// The clocks of the nodes in these records, against those of the daemon that gathered each within
// `took_ns`.
Check CheckPeerClocks(const std::vector<v1::FlightRecord>& records, int64_t took_ns);

// doctor_certificates.cc. At `now`, in UNIX seconds; one skipped check where there are no files.
std::vector<Check> CheckCertificates(const DaemonConfig& config, int64_t now);

// doctor_slurm.cc
std::vector<Check> CheckSlurm(const Machine& machine);

// doctor_gpu.cc. `daemon`: what it says of them; null: it does not answer.
std::vector<Check> CheckGpu(const Machine& machine, const GpuFacts& facts, const v1::Gpus* daemon);

// All of them, with the daemon that the options name; `config_path` empty: as the daemon says.
std::vector<Check> RunChecks(const GlobalOptions& options, const Machine& machine,
                             const std::string& config_path);

// What `doctor -o json` prints, but for the schema.
nlohmann::ordered_json DoctorJson(const std::vector<Check>& checks);

}  // namespace spccl::ctl
