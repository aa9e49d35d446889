// The daemon's configuration: one table of fields drives the file, the flags, --print-config and
// the lists in the man page, so that they cannot differ.
//
// A file is TOML; a flag wins over the file, the file over the default. Whatever is not understood
// (a field, its type or its value) is refused with its place, what was found and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "collective/policy/settings.h"
#include "daemon/job_share.h"
#include "daemon/metrics/listen_address.h"

namespace spccl::daemon {

inline constexpr std::string_view kDefaultConfigPath = "/etc/spccl/spccld.toml";
inline constexpr int kMaxChannels = 64;

enum class GpuUse : uint8_t { kAuto, kOff };
// How frames in GPUs' memory get to other nodes.
enum class GpuRoute : uint8_t { kAuto, kHost };

struct Config {
  std::string runtime_dir = "/run/spccl";    // the sockets
  std::string state_dir = "/var/lib/spccl";  // what survives a restart
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  uint32_t channels = 0;  // threads that move data; 0: one a hardware thread, at most 64
  bool pin = false;       // each channel thread to one core

  // From the first rank's arrival at an operation to the last's, and from there to its end.
  int64_t op_timeout_ns = 1'800'000'000'000;
  int64_t init_timeout_ns = 60'000'000'000;  // for all ranks of a communicator to join
  int64_t stop_timeout_ns = 10'000'000'000;  // for running operations to end after SIGTERM

  // How long work that is due may rest before the daemon counts as unhealthy.
  int64_t stall_limit_ns = 10'000'000'000;

  uint64_t max_sessions = 1024;
  uint64_t max_communicators = 1024;
  // Of one session, which is one client process.
  uint64_t max_buffers_per_client = 4096;
  uint64_t max_buffer_bytes_per_client = uint64_t{1} << 40;

  JobShare job_share;  // of a job of which nothing else is said

  // The flight recorder.
  uint32_t flight_operations = 64;  // of each communicator; 0: none
  uint32_t flight_spans = 4096;     // of each channel; 0: none
  uint32_t flight_files = 32;       // in state_dir/flight; 0: none
  uint64_t flight_file_bytes = uint64_t{64} << 20;

  // The connections to the daemons of other nodes; HOST:PORT.
  // Empty: none. Without TLS and MUNGE a loopback address.
  std::string peers_listen;
  std::string peers_advertise;  // what others dial; empty: as peers_listen
  std::string peers_tls_ca, peers_tls_cert, peers_tls_key;  // PEM files; all or none
  bool peers_munge = false;
  int64_t peers_heartbeat_ns = 500'000'000;

  // GPUs. Off: clients' GPU memory is copied through the host.
  GpuUse gpu_enabled = GpuUse::kAuto;
  std::string gpu_driver;   // a library; empty: the system's
  std::string gpu_kernels;  // libspccl_device.so; empty: the one that is installed
  std::string gpu_nccl;     // NCCL or NCCLX; empty: the system's NCCL
  GpuRoute gpu_between_nodes = GpuRoute::kAuto;
  // Of a large all-reduce over several GPUs: what goes over the host; empty: by measurement.
  std::optional<double> gpu_multipath;

  // Where metrics are served: as metrics::ParseListenAddress reads it; empty: nowhere.
  std::string metrics_listen = std::string(metrics::kDefaultListen);

  // Members may change everything, as root and the daemon's own user may; a name or a number.
  std::string admin_group;
  std::string tuning_model;   // a file of spccl-tune; empty: none
  policy::Settings settings;  // in force where no scope says otherwise

  bool operator==(const Config&) const = default;
};

// One field, as people see it.
struct FieldInfo {
  std::string name;           // the key in the file, dotted: "log.level"
  std::string flag;           // "--log-level"
  std::string expected;       // what a value must be: "one of debug, info, warning, error"
  std::string help;           // one sentence
  std::string default_value;  // as --print-config shows it
};
std::span<const FieldInfo> ConfigFields();

// `text` is the content of the file `path`, which is used for messages only. Fields that it does
// not name keep what `config` says. InvalidArgument: "PATH:LINE:COLUMN: ...", *config is unchanged.
absl::Status ApplyConfigText(std::string_view text, std::string_view path, Config* config);

// The whole configuration as TOML that ApplyConfigText() reads back to an equal one; each field
// under a comment with its meaning.
std::string PrintConfig(const Config& config);

// What the command line asks for.
struct CommandLine {
  // False: `output` (help, version or configuration) is to be printed, and the program ends with 0.
  bool run = true;
  std::string output;
  Config config;
  std::string file;  // that was read; empty: none
};
// Reads the flags, and the file that --config names or the default one if it exists. Also checks
// what fields must be together: ApplyConfigText() knows only what each is alone.
// InvalidArgument: what is wrong, and where; NotFound: the file that --config names.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             std::string_view version,
                                             std::string_view default_path = kDefaultConfigPath);

}  // namespace spccl::daemon
