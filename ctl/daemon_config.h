// The daemon's configuration, as far as a tool needs it: what its file and its flags say. The
// daemon alone knows all fields and their defaults (daemon/config.h): its program is asked for its
// word on a file.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/machine.h"

namespace spccl::ctl {

struct DaemonConfig {
  std::string path;  // the file; empty: there is none, and all is as by default
  std::map<std::string, std::string> fields;  // by the dotted name: "peers.listen"

  std::string Get(const std::string& name, const std::string& otherwise = "") const;
  // As TOML, without the file's comments.
  std::string Text() const;
};

// Of the daemon that runs as `daemon`, by its command line: the file that it names, then its flags.
// Without a daemon: of `etc`/spccl/spccld.toml, where it exists. `path` overrides which file is
// read. An error names the file, and where it is no TOML the line and column.
absl::StatusOr<DaemonConfig> ReadDaemonConfig(const Machine& machine, std::optional<pid_t> daemon,
                                              std::string path);

// The daemon's program: beside this tool, or in the sbin beside its bin, or what PATH has
// ("spccld").
std::string DaemonProgram();

// What that program says of a configuration file, as it does before a reload (--print-config).
// InvalidArgument: it refuses the file, in its words. Another error: it could not be asked.
absl::Status AskDaemonProgram(const std::string& program, const std::string& path);

}  // namespace spccl::ctl
