#include "daemon/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "daemon/file_io.h"

namespace spccl::daemon {
namespace {

constexpr int kSoPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5; not in older headers

bool IsReadable(int fd, short events) {
  pollfd query{.fd = fd, .events = events, .revents = 0};
  return ::poll(&query, 1, 0) > 0 && query.revents != 0;
}

absl::StatusOr<UniqueFd> PidfdOf(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &length) == 0 && fd >= 0) {
    UniqueFd pidfd(fd);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return pidfd;
  }
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return ErrnoStatus(errno, absl::StrCat("pidfd_open of pid ", pid));
  // The number may have been given to another process since the connect; but while the peer's end
  // is open, the peer lives and the number is still its own.
  if (IsReadable(socket, POLLRDHUP)) return absl::NotFoundError("the client has hung up");
  return pidfd;
}

std::string ReadOf(pid_t pid, const char* name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/", name));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a process's status says of it.
struct Ancestor {
  pid_t parent = 0;
  bool is_root = false;  // by its real and its effective user
};

std::optional<Ancestor> ReadAncestor(pid_t pid) {
  const std::string text = ReadOf(pid, "status");
  Ancestor ancestor;
  bool has_parent = false, has_uid = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, '\t');
    if (words[0] == "PPid:" && words.size() == 2) {
      has_parent = absl::SimpleAtoi(words[1], &ancestor.parent);
    } else if (words[0] == "Uid:" && words.size() == 5) {
      has_uid = true;
      ancestor.is_root = words[1] == "0" && words[2] == "0";
    }
  }
  if (!has_parent || !has_uid) return std::nullopt;
  return ancestor;
}

// Debian's is slurmstepd-wlm.
bool RunsSlurmstepd(pid_t pid) {
  char buffer[256];
  const ssize_t length =
      ::readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), buffer, sizeof buffer);
  if (length <= 0) return false;
  const absl::string_view path(buffer, static_cast<size_t>(length));
  return absl::StartsWith(path.substr(path.rfind('/') + 1), "slurmstepd");
}

bool IsDigits(absl::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// Whether the path down to (not including) `parts[end]` is slurmstepd's: "/slurm/uid_N" or
// "/slurm_HOST/uid_N" with version 1, "/system.slice/[HOST_]slurmstepd.scope" with version 2.
bool IsSlurmParent(const std::vector<absl::string_view>& parts, size_t end) {
  if (end != 2) return false;
  if (absl::StartsWith(parts[1], "uid_")) {
    return parts[0] == "slurm" || absl::StartsWith(parts[0], "slurm_");
  }
  return parts[0] == "system.slice" && absl::EndsWith(parts[1], "slurmstepd.scope");
}

bool HasExited(const UniqueFd& pidfd) {
  return pidfd.valid() && IsReadable(pidfd.get(), POLLIN);
}

// As /proc/PID/stat says (proc(5)): "PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS ...". The
// kernel sets the flag before it closes the process's files.
bool IsEnding(pid_t pid) {
  constexpr uint32_t kPfExiting = 0x4;  // PF_EXITING of the kernel's linux/sched.h
  constexpr size_t kFlags = 7;          // counted from the blank after the name
  const std::string text = ReadOf(pid, "stat");
  // The name may hold anything, brackets too.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(text).substr(name_end + 1), ' ');
  uint32_t flags = 0;
  return words.size() > kFlags && absl::SimpleAtoi(words[kFlags], &flags) &&
         (flags & kPfExiting) != 0;
}

}  // namespace

std::optional<std::string> SlurmJobOf(std::string_view cgroup_text) {
  const absl::string_view text(cgroup_text.data(), cgroup_text.size());
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    // HIERARCHY:CONTROLLERS:/PATH
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(absl::StripPrefix(fields[2], "/"), '/');
    for (size_t i = 0; i < parts.size(); ++i) {
      absl::string_view part = parts[i];
      if (!absl::ConsumePrefix(&part, "job_") || !IsDigits(part)) continue;
      if (IsSlurmParent(parts, i)) return std::string(part);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> JobOfStepTitle(std::string_view title) {
  absl::string_view text(title.data(), title.size());
  uint64_t job = 0;
  if (!absl::ConsumePrefix(&text, "slurmstepd: [")) return std::nullopt;
  const size_t dot = text.find('.');
  if (dot == absl::string_view::npos || !IsDigits(text.substr(0, dot))) return std::nullopt;
  if (!absl::SimpleAtoi(text.substr(0, dot), &job)) return std::nullopt;
  return job;
}

std::optional<uint64_t> StepJobOf(pid_t pid) {
  constexpr int kMaxGenerations = 64;
  for (int generation = 0; generation < kMaxGenerations && pid > 1; ++generation) {
    const std::optional<Ancestor> ancestor = ReadAncestor(pid);
    if (!ancestor) return std::nullopt;
    // Root's only: a user may give any program any title.
    if (ancestor->is_root && RunsSlurmstepd(pid)) return JobOfStepTitle(ReadOf(pid, "cmdline"));
    pid = ancestor->parent;
  }
  return std::nullopt;
}

bool HasEnded(const Peer& peer) {
  if (!peer.pidfd.valid()) return false;
  // The number is the process's own unless it has been reaped, which the pidfd then tells.
  return IsEnding(peer.pid) || HasExited(peer.pidfd);
}

uid_t UserOf(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  const int error = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
  return error == 0 ? credentials.uid : static_cast<uid_t>(-1);
}

absl::StatusOr<Peer> IdentifyPeer(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED of a session socket");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  if (peer.pid == 0) {
    peer.job_id = absl::StrCat("u", peer.uid, ".s0");
    return peer;
  }
  SPCCL_ASSIGN_OR_RETURN(peer.pidfd, PidfdOf(socket, peer.pid));
  absl::StatusOr<std::string> cgroup = ReadFile(absl::StrCat("/proc/", peer.pid, "/cgroup"));
  // Or it would pass for another job's. Of a kernel without groups there is none.
  if (absl::IsResourceExhausted(cgroup.status())) return cgroup.status();
  if (cgroup.ok()) peer.cgroup = *std::move(cgroup);
  if (const auto job = SlurmJobOf(peer.cgroup)) {
    peer.job_id = absl::StrCat("u", peer.uid, ".j", *job);
  } else {
    peer.step_job = StepJobOf(peer.pid);
    peer.job_id = absl::StrCat("u", peer.uid, ".s", ::getsid(peer.pid));
  }
  // What was read by number was the peer's if it still lives.
  if (HasExited(peer.pidfd)) return absl::NotFoundError("the client has ended");
  return peer;
}

}  // namespace spccl::daemon
