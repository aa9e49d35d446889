// A daemon for one test, in a folder of its own: in this process, or the real spccld as a child.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core.h"
#include "daemon/job_table.h"
#include "daemon/settings_store.h"
#include "tests/support/temp_folder.h"

namespace spccl::testing {

// The core in this process, with two channel threads unless told otherwise. Do not fork afterwards.
class DaemonEnv {
 public:
  // `options.runtime_dir` is set here. The hooks are the daemon's own unless given.
  // `nodes`: of other daemons; borrowed.
  explicit DaemonEnv(daemon::CoreOptions options = {}, const daemon::CoreHooks* hooks = nullptr,
                     daemon::Nodes* nodes = nullptr);

  daemon::Core& core() { return *core_; }
  daemon::SettingsStore& settings() { return *settings_; }
  daemon::JobTable& jobs() { return *jobs_; }
  const std::string& runtime_dir() const { return folder_.path(); }
  std::string socket_path() const { return daemon::SessionSocketPath(folder_.path()); }
  // Destroys the core (it stops at once).
  void Destroy() { core_.reset(); }

 private:
  TempFolder folder_;
  std::unique_ptr<daemon::SettingsStore> settings_;
  std::unique_ptr<daemon::JobTable> jobs_;
  std::unique_ptr<daemon::Core> core_;
};

// The spccld that was built beside the tests, as a child process, with the log in log_path().
class SpawnedDaemon {
 public:
  // Blocks until it serves both its sockets, which it logs at level info as text.
  static absl::StatusOr<std::unique_ptr<SpawnedDaemon>> Start(std::vector<std::string> flags = {});
  ~SpawnedDaemon();  // kills it if it still runs
  SpawnedDaemon(const SpawnedDaemon&) = delete;
  SpawnedDaemon& operator=(const SpawnedDaemon&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& runtime_dir() const { return folder_.path(); }
  std::string socket_path() const { return daemon::SessionSocketPath(folder_.path()); }
  std::string log_path() const { return folder_.path() + "/log"; }
  std::string ReadLog() const;
  void Signal(int signal);
  // The exit code, 128 + n if signal n ended it; DeadlineExceeded if it still runs.
  absl::StatusOr<int> Wait(int64_t timeout_ms);

 private:
  SpawnedDaemon() = default;
  TempFolder folder_;
  pid_t pid_ = -1;
};

}  // namespace spccl::testing
