// The checks of `spcclctl doctor`: each says what was found, why it matters, and what to do.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/context.h"
#include "proto/spccl/v1/control.pb.h"

namespace spccl::ctl {

enum class Verdict { kOk, kWarning, kFailed };
std::string NameOf(Verdict verdict);  // "ok", "warning", "failed"

struct Check {
  std::string name;
  Verdict verdict;
  std::string found;
  std::string why;
  std::string remedy;  // empty where nothing need be done
};

// Where the checks look; a test has folders of its own.
struct Machine {
  std::string proc = "/proc";
  std::string shm = "/dev/shm";
};

Check CheckRuntimeDir(const std::string& runtime_dir);
Check CheckSocket(const std::string& runtime_dir, const std::string& name);
Check CheckDaemon(const absl::StatusOr<v1::GetStatusResponse>& answer);
Check CheckVersion(const v1::Status& status);
Check CheckMemlock(const Machine& machine, std::optional<pid_t> daemon);
Check CheckSharedMemory(const Machine& machine);
// Whether the daemon may read and write the memory of clients that use ordinary buffers;
// `daemon_uid` is its user.
Check CheckCrossMemoryAttach(const Machine& machine, std::optional<uid_t> daemon_uid);
Check CheckCodecTarget(const std::string& here, const std::optional<std::string>& daemon);
std::vector<Check> CheckKernel();

// All of them, with the daemon that the options name.
std::vector<Check> RunChecks(const GlobalOptions& options, const Machine& machine);

}  // namespace spccl::ctl
