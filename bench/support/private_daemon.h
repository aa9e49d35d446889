// A spccld of one's own: in a temporary folder, for as long as the owner lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
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
    std::vector<std::string> launcher;   // a command that runs the command behind it elsewhere
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

// The daemons of a run, one a node.
struct Daemons {
  std::vector<PrivateDaemon> own;         // empty if they ran already
  std::vector<std::string> runtime_dirs;  // by node

  uint32_t nodes() const { return static_cast<uint32_t>(runtime_dirs.size()); }
  // Ranks are dealt out to nodes in blocks.
  uint32_t NodeOf(uint32_t rank, uint32_t ranks) const {
    return static_cast<uint32_t>(uint64_t{rank} * nodes() / ranks);
  }
  // Points this process's clients, and those of processes that it forks, at a node's daemon.
  void Use(uint32_t node) const;
};

struct DaemonWish {
  std::string runtime_dir;  // of the daemon to use; empty: start private ones
  uint32_t nodes = 1;
  // As PrivateDaemon's, but that {} in arguments and in the launcher becomes the number of the
  // node, from 1 on; the launcher's words are separated by blanks.
  std::string binary;
  std::vector<std::string> arguments;
  std::string launcher;
};
absl::StatusOr<Daemons> GetDaemons(const DaemonWish& wish);

}  // namespace spccl::bench
