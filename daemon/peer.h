// Who is at the other end of a session socket, as the kernel says; nothing comes from the client.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace spccl::daemon {

struct Peer {
  pid_t pid = 0;  // 0: in a PID namespace that we do not see
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;      // readable when the process has ended; invalid where pid is 0
  std::string job_id;  // "u1000.j77": Slurm job 77; "u1000.s4242": kernel session 4242
  std::string cgroup;  // the text of /proc/PID/cgroup
  std::optional<uint64_t> step_job;  // the job of the slurmstepd that the process descends from
};

// Known also when the process has ended.
uid_t UserOf(int socket);

// Not found if the process has ended in the meantime.
absl::StatusOr<Peer> IdentifyPeer(int socket);

// The Slurm job of a process, from the text of its /proc/PID/cgroup. Only where slurmstepd makes
// its groups: a user may name a group of their own (below user.slice, say) as they like.
std::optional<std::string> SlurmJobOf(std::string_view cgroup_text);

// The job of the slurmstepd that a process descends from, where the plug-in that tracks processes
// makes no groups. Believes a process that root runs from a file of that name, and its title
// ("slurmstepd: [77.0]"). A process whose parents have ended has none.
std::optional<uint64_t> StepJobOf(pid_t pid);
// From such a title.
std::optional<uint64_t> JobOfStepTitle(std::string_view title);

// Whether the process has ended, or is ending: its sockets hang up before its pidfd tells.
bool HasEnded(const Peer& peer);

}  // namespace spccl::daemon
