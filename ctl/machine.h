// What the files of a machine say of it and of a daemon there. Every function reads, none changes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/read_file.h"

namespace spccl::ctl {

// Where to look; a test has folders of its own.
struct Machine {
  std::string proc = "/proc", sys = "/sys", etc = "/etc", run = "/run", dev = "/dev";
  std::string shm = "/dev/shm", tmp = "/tmp";
};

// At most `most_bytes` from the start, or from the end. `*total_bytes`, where wanted: what there
// is, as far as it is known. InvalidArgument: no regular file.
enum class Part { kHead, kTail };
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes,
                                     Part part = Part::kHead, uint64_t* total_bytes = nullptr,
                                     Links links = Links::kFollow);
// Without its end; empty where the file cannot be read.
std::string FirstLine(const std::string& path);
// The names in a folder, sorted; empty where it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder);

struct PathFacts {
  int error = 0;  // of stat; the rest is for 0 only
  mode_t mode = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  bool may_enter = false, may_write = false;  // the caller
};
PathFacts FactsOf(const std::string& path);
std::string ModeText(mode_t mode);  // "0755"

// "999 (spccl)": with the name, where this machine knows one.
std::string UserText(uid_t uid);

// Of a process; nullopt where it cannot be read.
// RLIMIT_MEMLOCK's soft limit; RLIM_INFINITY: none.
std::optional<uint64_t> MemlockOf(const Machine& machine, pid_t pid);
// The effective capabilities, as bits.
std::optional<uint64_t> CapabilitiesOf(const Machine& machine, pid_t pid);
std::optional<std::vector<std::string>> ArgumentsOf(const Machine& machine, pid_t pid);
std::optional<std::map<std::string, std::string>> EnvironmentOf(const Machine& machine, pid_t pid);
// Whether the socket with this inode is one of its descriptors.
std::optional<bool> HoldsSocket(const Machine& machine, pid_t pid, uint64_t inode);

// A TCP socket that listens.
struct TcpListener {
  uint16_t port;
  uid_t uid;  // whose process made it
  uint64_t inode;
};
// Those of the network namespace of `pid`, or of the caller's; IPv4 and IPv6.
std::vector<TcpListener> TcpListenersOf(const Machine& machine, std::optional<pid_t> pid);

}  // namespace spccl::ctl
