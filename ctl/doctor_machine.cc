// Checks of what the daemon runs on: limits, memory, namespaces, the kernel.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/doctor.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kEnoughMemlock = 64 * kMiB, kEnoughShm = 64 * kMiB, kEnoughMemory = 256 * kMiB;

std::string ByteText(uint64_t bytes) {
  return HumanBytes(static_cast<double>(bytes));
}

bool Has(std::optional<uint64_t> capabilities, int which) {
  return ((capabilities.value_or(0) >> which) & 1) != 0;
}

// A number of /proc/meminfo, in bytes.
std::optional<uint64_t> MemoryInfo(const Machine& machine, const std::string& name) {
  std::ifstream file(machine.proc + "/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return std::nullopt;
}

Check Feature(const std::string& name, const std::string& error, const std::string& why) {
  return {.name = name,
          .verdict = error.empty() ? Verdict::kOk : Verdict::kFailed,
          .found = error.empty() ? "works" : error,
          .why = why,
          .remedy = error.empty()
                        ? ""
                        : "use Linux 5.10 or newer; in a container, allow the system call"};
}

// What a namespace's link says: "pid:[4026531836]"; empty where it cannot be read.
std::string NamespaceOf(const Machine& machine, const std::string& process, const char* kind) {
  std::error_code error;
  return std::filesystem::read_symlink(absl::StrCat(machine.proc, "/", process, "/ns/", kind),
                                       error)
      .string();
}

}  // namespace

Check CheckMemlock(const Machine& machine, std::optional<pid_t> daemon, uint64_t mapped_bytes) {
  std::optional<uint64_t> limit;
  bool exempt = false;
  if (daemon.has_value()) {
    limit = MemlockOf(machine, *daemon);
    exempt = Has(CapabilitiesOf(machine, *daemon), CAP_IPC_LOCK);
  }
  std::string whose = "the daemon's";
  if (!limit.has_value()) {
    whose = "this shell's (the daemon's cannot be read)";
    rlimit own;
    limit = ::getrlimit(RLIMIT_MEMLOCK, &own) == 0 ? own.rlim_cur : 0;
  }
  const bool enough = exempt || *limit >= std::max(kEnoughMemlock, mapped_bytes);
  const bool needed = !NamesIn(machine.sys + "/class/infiniband").empty();
  Check check{
      .name = "locked memory",
      .verdict = enough   ? Verdict::kOk
                 : needed ? Verdict::kFailed
                          : Verdict::kWarning,
      .found =
          absl::StrCat(whose, " limit is ", *limit == RLIM_INFINITY ? "none" : ByteText(*limit)),
      .why = "RDMA and GPU transports pin the buffers that they move",
      .remedy = enough ? "" : "LimitMEMLOCK=infinity in spccld's unit, or ulimit -l unlimited"};
  if (exempt && *limit != RLIM_INFINITY) check.found += ", but CAP_IPC_LOCK lifts it";
  if (mapped_bytes > 0) absl::StrAppend(&check.found, "; ", ByteText(mapped_bytes), " registered");
  return check;
}

Check CheckSharedMemory(const Machine& machine) {
  Check check{
      .name = "shared memory",
      .verdict = Verdict::kFailed,
      .found = "",
      .why =
          "UCX and jobs' own libraries put segments there; buffers of spccl's own are memory "
          "without a file, and count where `memory` does",
      .remedy = absl::StrCat("mount a tmpfs at ", machine.shm)};
  struct statvfs info;
  if (::statvfs(machine.shm.c_str(), &info) != 0) {
    check.found = absl::StrCat(machine.shm, ": ", std::strerror(errno));
    return check;
  }
  const uint64_t available = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  const uint64_t size = static_cast<uint64_t>(info.f_blocks) * info.f_frsize;
  check.found = absl::StrCat(ByteText(available), " of ", ByteText(size), " free in ", machine.shm);
  check.verdict = available >= kEnoughShm ? Verdict::kOk : Verdict::kWarning;
  check.remedy = available >= kEnoughShm
                     ? ""
                     : absl::StrCat("remove what fills ", machine.shm,
                                    ", or enlarge it (docker: --shm-size, or --ipc=host)");
  return check;
}

Check CheckMemory(const Machine& machine) {
  const std::optional<uint64_t> available = MemoryInfo(machine, "MemAvailable");
  const uint64_t shared = MemoryInfo(machine, "Shmem").value_or(0);
  Check check{.name = "memory",
              .verdict = Verdict::kSkipped,
              .found = "/proc/meminfo cannot be read",
              .why = "spcclMemAlloc takes its pages at once, and fails where there are none",
              .remedy = ""};
  if (!available.has_value()) return check;
  check.found = absl::StrCat(ByteText(*available), " available, ", ByteText(shared), " shared");
  check.verdict = *available >= kEnoughMemory ? Verdict::kOk : Verdict::kWarning;
  if (check.verdict == Verdict::kWarning) {
    check.remedy = "`spcclctl buffers` shows what clients hold; end what leaks, or use fewer ranks";
  }
  return check;
}

Check CheckHugePages(const Machine& machine, bool collapses) {
  const std::string modes =
      FirstLine(machine.sys + "/kernel/mm/transparent_hugepage/shmem_enabled");
  const size_t open = modes.find('['), close = modes.find(']');
  const std::string mode = open == std::string::npos || close == std::string::npos || close < open
                               ? "not known here"
                               : modes.substr(open + 1, close - open - 1);
  return {.name = "huge pages",
          .verdict = collapses ? Verdict::kOk : Verdict::kWarning,
          .found = absl::StrCat(collapses ? "shared memory can be collapsed into them"
                                          : "shared memory cannot be collapsed into them",
                                "; shmem_enabled is ", mode),
          .why = "with small pages a pass over large buffers takes nearly twice as long",
          .remedy = collapses ? ""
                              : absl::StrCat("use Linux 6.1 or newer, and let ", machine.sys,
                                             "/kernel/mm/transparent_hugepage/shmem_enabled say "
                                             "advise or never, not deny")};
}

Check CheckNamespaces(const Machine& machine, std::optional<pid_t> daemon) {
  Check check{
      .name = "namespaces",
      .verdict = Verdict::kSkipped,
      .found = "no daemon is seen from here",
      .why =
          "in another process or user namespace the daemon cannot reach its clients' memory "
          "nor tell their jobs; in another network, addresses are others",
      .remedy = ""};
  if (!daemon.has_value()) return check;
  std::vector<std::string> other, same;
  bool matters = false;
  for (const char* kind : {"pid", "user", "net", "ipc"}) {
    const std::string theirs = NamespaceOf(machine, absl::StrCat(*daemon), kind);
    const std::string ours = NamespaceOf(machine, "self", kind);
    if (theirs.empty() || ours.empty()) continue;
    (theirs == ours ? same : other).push_back(kind);
    if (theirs != ours) matters |= kind[0] == 'p' || kind[0] == 'u';
  }
  if (same.empty() && other.empty()) {
    check.found = "those of the daemon cannot be read: run doctor as root or as its user";
    return check;
  }
  check.verdict = matters ? Verdict::kWarning : Verdict::kOk;
  check.found = other.empty() ? absl::StrCat("the daemon's are ours: ", absl::StrJoin(same, ", "))
                              : absl::StrCat("the daemon has others: ", absl::StrJoin(other, ", "));
  if (matters) {
    check.remedy =
        "run clients in the daemon's process and user namespace (docker: --pid=host, no userns), "
        "or "
        "let them use spcclMemAlloc";
  }
  return check;
}

std::vector<Check> CheckKernel(const KernelFacts& facts) {
  return {
      Feature("memfd seals", facts.memfd_seals,
              "shared memory that a client cannot shrink under the daemon"),
      Feature("pidfd", facts.pidfd, "the daemon learns at once of a client's death"),
      Feature("/proc/self/mem", facts.reads_own,
              "by it processes hand over ordinary memory, which is copied once more otherwise")};
}

}  // namespace spccl::ctl
