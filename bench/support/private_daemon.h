// A spccld of one's own: in a temporary folder, for as long as the owner lives.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spccl::bench {

class PrivateDaemon {
 public:
  struct Options {
    std::string binary;  // empty: spccld beside the running program, else the one in PATH
    std::vector<std::string> arguments;  // beyond those that name its folders
    int64_t ready_timeout_ns = 10'000'000'000;
  };

  // Starts the daemon and waits until it takes sessions. Its log goes to a file in its folder,
  // whose end becomes part of the error when the daemon does not come up.
  static absl::StatusOr<PrivateDaemon> Start(const Options& options);

  PrivateDaemon(PrivateDaemon&& other) noexcept;
  PrivateDaemon& operator=(PrivateDaemon&&) = delete;
  // Stops the daemon (SIGTERM; SIGKILL after 5 s) and removes its folder. Should this process die
  // first, the kernel sends the daemon SIGTERM.
  ~PrivateDaemon();

  // Where clients find it; what SPCCL_RUNTIME_DIR must say.
  std::string runtime_dir() const { return folder_ + "/run"; }
  pid_t pid() const { return pid_; }

 private:
  PrivateDaemon(std::string folder, pid_t pid) : folder_(std::move(folder)), pid_(pid) {}
  void Stop();

  std::string folder_;
  pid_t pid_ = 0;
};

// The folder of the running program's binary, without a slash at its end.
absl::StatusOr<std::string> OwnFolder();

// Points the clients of this process, and of those that it forks, at a daemon: the one whose
// runtime folder is named, or, if empty, a private one, which the returned owner keeps alive.
struct DaemonChoice {
  std::vector<PrivateDaemon> own;  // empty or one
  std::string runtime_dir;
};
absl::StatusOr<DaemonChoice> ChooseDaemon(const std::string& runtime_dir,
                                          const PrivateDaemon::Options& otherwise);

}  // namespace spccl::bench
