// What a support bundle holds, and where each part comes from.
#pragma once

#include <optional>
#include <string>

#include "ctl/bundle.h"
#include "ctl/context.h"
#include "ctl/daemon_config.h"
#include "ctl/machine.h"

namespace spccl::ctl {

// The daemon's own word on all there is: status, jobs, settings, events. Each is an error where the
// daemon does not answer.
void AddAnswers(const GlobalOptions& options, Bundle* bundle);

// What is on disk of the daemon and of its process: configuration, metrics, flight records, logs.
void AddDaemonFiles(const GlobalOptions& options, const Machine& machine,
                    std::optional<pid_t> daemon, const absl::StatusOr<DaemonConfig>& config,
                    Bundle* bundle);

// The kernel, the distribution, processors, memory, network.
void AddMachineFiles(const Machine& machine, Bundle* bundle);

}  // namespace spccl::ctl
