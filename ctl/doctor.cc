#include "ctl/doctor.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "ctl/client.h"
#include "ctl/render.h"
#include "kernels/host/codec.h"

namespace spccl::ctl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kEnoughMemlock = 64 * kMiB, kEnoughShm = 64 * kMiB;

std::string ModeText(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

std::string Reason(int error) {
  return std::strerror(error);
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The soft limit that /proc/PID/limits gives; nullopt where it cannot be read, all ones: unlimited.
std::optional<uint64_t> MemlockOf(const Machine& machine, pid_t pid) {
  std::ifstream file(absl::StrCat(machine.proc, "/", pid, "/limits"));
  constexpr char kName[] = "Max locked memory";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) continue;
    std::istringstream rest(line.substr(sizeof kName - 1));
    std::string soft;
    rest >> soft;
    if (soft == "unlimited") return RLIM_INFINITY;
    return std::strtoull(soft.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

Check Feature(const std::string& name, bool works, int error, const std::string& why) {
  return {.name = name,
          .verdict = works ? Verdict::kOk : Verdict::kFailed,
          .found = works ? "works" : Reason(error),
          .why = why,
          .remedy = works ? "" : "use Linux 5.10 or newer; in a container, allow the system call"};
}

bool MemfdSeals() {
  const UniqueFd fd(static_cast<int>(
      ::syscall(SYS_memfd_create, "spccl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  constexpr int kAddSeals = 1033, kSealShrink = 2;  // F_ADD_SEALS, F_SEAL_SHRINK
  return fd.valid() && ::syscall(SYS_fcntl, fd.get(), kAddSeals, kSealShrink) == 0;
}

bool PidfdOpens() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return fd.valid();
}

bool ReadsMemory() {
  uint64_t from = 42, to = 0;
  const iovec local = {&to, sizeof to}, remote = {&from, sizeof from};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == sizeof to && to == from;
}

absl::StatusOr<v1::GetStatusResponse> AskDaemon(const GlobalOptions& options) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (!client.ok()) return client.status();
  return (*client)->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest());
}

}  // namespace

std::string NameOf(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarning ? "warning" : "failed";
}

Check CheckRuntimeDir(const std::string& runtime_dir) {
  Check check{.name = "runtime folder",
              .verdict = Verdict::kFailed,
              .found = "",
              .why =
                  "clients and this tool find the daemon's sockets there, and nobody else may "
                  "put sockets in their place",
              .remedy = absl::StrCat("start spccld, or name its folder by --runtime-dir or "
                                     "SPCCL_RUNTIME_DIR; now: ",
                                     runtime_dir)};
  struct stat info;
  if (::stat(runtime_dir.c_str(), &info) != 0) {
    check.found = absl::StrCat(runtime_dir, ": ", Reason(errno));
    return check;
  }
  check.found =
      absl::StrCat(runtime_dir, ", owner uid ", info.st_uid, ", mode ", ModeText(info.st_mode));
  if (!S_ISDIR(info.st_mode)) {
    check.found += ", no folder";
  } else if ((info.st_mode & S_IWOTH) != 0) {
    check.found += ", all may write there";
    check.remedy = absl::StrCat("chmod o-w ", runtime_dir);
  } else if (::access(runtime_dir.c_str(), X_OK) != 0) {
    check.found += ", we may not enter";
    check.remedy = absl::StrCat("chmod o+x ", runtime_dir);
  } else {
    check.verdict = Verdict::kOk;
    check.remedy.clear();
  }
  return check;
}

Check CheckSocket(const std::string& runtime_dir, const std::string& name) {
  const std::string path = runtime_dir + "/" + name;
  Check check{.name = name,
              .verdict = Verdict::kFailed,
              .found = "",
              .why = name == "control.sock" ? "this tool speaks to the daemon through it"
                                            : "libspccl opens its sessions through it",
              .remedy = "start spccld"};
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    check.found = absl::StrCat(path, ": ", Reason(errno));
  } else if (!S_ISSOCK(info.st_mode)) {
    check.found = absl::StrCat(path, " is no socket");
    check.remedy = absl::StrCat("remove ", path, " and start spccld again");
  } else if (::access(path.c_str(), W_OK) != 0) {
    check.found = absl::StrCat(path, ", mode ", ModeText(info.st_mode), ": we may not connect");
    check.remedy = absl::StrCat("chmod 0666 ", path, ": the daemon decides by uid");
  } else {
    check.verdict = Verdict::kOk;
    check.found = absl::StrCat("owner uid ", info.st_uid, ", mode ", ModeText(info.st_mode));
    check.remedy.clear();
  }
  return check;
}

Check CheckDaemon(const absl::StatusOr<v1::GetStatusResponse>& answer) {
  Check check{.name = "daemon",
              .verdict = Verdict::kFailed,
              .found = "",
              .why = "without it no collective runs",
              .remedy = "start spccld, and read its log"};
  if (!answer.ok()) {
    check.found = std::string(answer.status().message());
    return check;
  }
  const v1::Status& status = answer->status();
  if (!status.healthy()) {
    check.found = absl::StrCat("answers, but is not healthy: ", Printable(status.health_detail()));
    check.remedy = "look at `spcclctl comms --ranks` and its log; abort what hangs, or restart it";
    return check;
  }
  check.verdict = status.draining() ? Verdict::kWarning : Verdict::kOk;
  check.found = absl::StrCat("healthy, pid ", status.pid(), status.draining() ? ", draining" : "");
  check.remedy = status.draining() ? "spcclctl drain --undo" : "";
  return check;
}

Check CheckVersion(const v1::Status& status) {
  const bool same = status.version() == kVersion;
  return {.name = "versions",
          .verdict = same ? Verdict::kOk : Verdict::kWarning,
          .found = absl::StrCat("spcclctl ", kVersion, ", spccld ", Printable(status.version())),
          .why = "a daemon older than its tools lacks what they ask for",
          .remedy = same ? "" : "restart spccld after an upgrade; install both from one package"};
}

Check CheckMemlock(const Machine& machine, std::optional<pid_t> daemon) {
  std::optional<uint64_t> limit;
  if (daemon.has_value()) limit = MemlockOf(machine, *daemon);
  std::string whose = "the daemon's";
  if (!limit.has_value()) {
    whose = "this shell's (the daemon's cannot be read)";
    rlimit own;
    limit = ::getrlimit(RLIMIT_MEMLOCK, &own) == 0 ? own.rlim_cur : 0;
  }
  const bool enough = *limit >= kEnoughMemlock;
  return {.name = "locked memory",
          .verdict = enough ? Verdict::kOk : Verdict::kWarning,
          .found = absl::StrCat(
              whose, " limit is ",
              *limit == RLIM_INFINITY ? "none" : HumanBytes(static_cast<double>(*limit))),
          .why = "network and GPU transports pin the buffers that they move",
          .remedy = enough ? "" : "LimitMEMLOCK=infinity in spccld's unit, or ulimit -l unlimited"};
}

Check CheckSharedMemory(const Machine& machine) {
  Check check{.name = "shared memory",
              .verdict = Verdict::kFailed,
              .found = "",
              .why = "buffers and rings that clients and the daemon share are such memory",
              .remedy = absl::StrCat("mount a tmpfs at ", machine.shm)};
  struct statvfs info;
  if (::statvfs(machine.shm.c_str(), &info) != 0) {
    check.found = absl::StrCat(machine.shm, ": ", Reason(errno));
    return check;
  }
  const uint64_t available = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  check.found = absl::StrCat(HumanBytes(static_cast<double>(available)), " free in ", machine.shm);
  check.verdict = available >= kEnoughShm ? Verdict::kOk : Verdict::kWarning;
  check.remedy = available >= kEnoughShm
                     ? ""
                     : absl::StrCat("remove what fills ", machine.shm,
                                    ", or enlarge it (docker: --shm-size, or --ipc=host)");
  return check;
}

Check CheckCrossMemoryAttach(const Machine& machine, std::optional<uid_t> daemon_uid) {
  Check check{.name = "cross-memory attach",
              .verdict = Verdict::kOk,
              .found = "",
              .why =
                  "with it the daemon reads and writes ordinary (malloc'ed) buffers in place; "
                  "without it they are staged through shared memory, which costs a copy",
              .remedy = ""};
  const std::string text = FirstLine(machine.proc + "/sys/kernel/yama/ptrace_scope");
  if (text.empty()) {
    check.found = "no Yama in this kernel: allowed between processes of one user, and to root";
  } else {
    check.found = absl::StrCat("kernel.yama.ptrace_scope is ", text);
  }
  if (daemon_uid.has_value())
    absl::StrAppend(&check.found, ", the daemon runs as uid ", *daemon_uid);
  const bool root = daemon_uid.value_or(1) == 0;
  const bool allowed = text.empty() || text == "0" || (root && (text == "1" || text == "2"));
  if (!allowed) {
    check.verdict = Verdict::kWarning;
    check.remedy = text == "3" ? "reboot with kernel.yama.ptrace_scope at 2 or less"
                               : "sysctl kernel.yama.ptrace_scope=0, or run spccld as root";
    absl::StrAppend(&check.remedy, "; or allocate by spcclMemAlloc, which needs no such right");
  }
  return check;
}

Check CheckCodecTarget(const std::string& here, const std::optional<std::string>& daemon) {
  const bool same = !daemon.has_value() || *daemon == here;
  return {
      .name = "codec instructions",
      .verdict = same ? Verdict::kOk : Verdict::kWarning,
      .found = same ? here : absl::StrCat(here, " here, ", Printable(*daemon), " in the daemon"),
      .why = "they decide how fast frames are made and read",
      .remedy = same ? "" : "restart spccld: it was started on, or moved from, another processor"};
}

std::vector<Check> CheckKernel() {
  std::vector<Check> checks;
  bool works = MemfdSeals();
  checks.push_back(Feature("memfd seals", works, errno,
                           "shared memory that a client cannot shrink under the daemon"));
  works = PidfdOpens();
  checks.push_back(Feature("pidfd", works, errno, "the daemon learns at once of a client's death"));
  works = ReadsMemory();
  checks.push_back(Feature("process_vm_readv", works, errno, "cross-memory attach is this call"));
  return checks;
}

std::vector<Check> RunChecks(const GlobalOptions& options, const Machine& machine) {
  std::vector<Check> checks = {CheckRuntimeDir(options.runtime_dir),
                               CheckSocket(options.runtime_dir, "session.sock"),
                               CheckSocket(options.runtime_dir, "control.sock")};
  const absl::StatusOr<v1::GetStatusResponse> answer = AskDaemon(options);
  checks.push_back(CheckDaemon(answer));
  std::optional<pid_t> pid;
  std::optional<uid_t> uid;
  std::optional<std::string> target;
  if (answer.ok()) {
    checks.push_back(CheckVersion(answer->status()));
    pid = answer->status().pid();
    target = answer->status().codec_target();
    struct stat info;
    if (::stat(ControlSocketPath(options.runtime_dir).c_str(), &info) == 0) uid = info.st_uid;
  }
  checks.push_back(CheckMemlock(machine, pid));
  checks.push_back(CheckSharedMemory(machine));
  checks.push_back(CheckCrossMemoryAttach(machine, uid));
  checks.push_back(CheckCodecTarget(std::string(CurrentTarget()), target));
  for (Check& check : CheckKernel()) checks.push_back(std::move(check));
  return checks;
}

}  // namespace spccl::ctl
