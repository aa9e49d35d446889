#include "bench/support/private_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/shm/socket.h"

namespace spccl::bench {
namespace {

namespace fs = std::filesystem;

constexpr useconds_t kPollUs = 2'000;
constexpr int64_t kStopTimeoutNs = 5'000'000'000;

std::string SessionSocketPath(const std::string& runtime_dir) {
  return runtime_dir + "/session.sock";
}

absl::StatusOr<std::string> FindBinary(const std::string& given) {
  if (!given.empty()) {
    if (access(given.c_str(), X_OK) != 0) return ErrnoStatus(errno, given);
    return given;
  }
  SPCCL_ASSIGN_OR_RETURN(const std::string folder, OwnFolder());
  // Built, or installed: from bin/, and from libexec/spccl/.
  for (const char* beside :
       {"/spccld", "/../bin/spccld", "/../sbin/spccld", "/../../sbin/spccld"}) {
    const std::string path = folder + beside;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return std::string("spccld");  // execvp looks in PATH
}

absl::StatusOr<std::string> MakeFolder() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  std::string folder = (error ? fs::path("/tmp") : base).string() + "/spccl-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, "mkdtemp " + folder);
  for (const char* part : {"/run", "/state"}) {
    if (mkdir((folder + part).c_str(), 0700) != 0) {
      return ErrnoStatus(errno, "mkdir " + folder + part);
    }
  }
  return folder;
}

void RemoveFolder(const std::string& folder) {
  std::error_code ignored;  // nothing can be done about it, and nothing depends on it
  fs::remove_all(folder, ignored);
}

std::string LogTail(const std::string& folder) {
  std::ifstream log(folder + "/log");
  std::stringstream text;
  text << log.rdbuf();
  std::string all = text.str();
  constexpr size_t kTail = 400;
  return all.size() <= kTail ? all : all.substr(all.size() - kTail);
}

[[noreturn]] void Exec(const std::string& binary, const std::string& folder,
                       const PrivateDaemon::Options& options, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  setpgid(0, 0);  // a terminal's Ctrl-C is for the parent, which then stops us
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int log = open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  std::vector<std::string> all = options.launcher;
  all.insert(all.end(),
             {binary, "--runtime-dir", folder + "/run", "--state-dir", folder + "/state"});
  all.insert(all.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

}  // namespace

absl::StatusOr<std::string> OwnFolder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoStatus(error.value(), "read /proc/self/exe");
  return self.parent_path().string();
}

absl::StatusOr<PrivateDaemon> PrivateDaemon::Start(const Options& options) {
  SPCCL_ASSIGN_OR_RETURN(const std::string binary, FindBinary(options.binary));
  SPCCL_ASSIGN_OR_RETURN(const std::string folder, MakeFolder());
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(binary, folder, options, parent);
  if (pid < 0) {
    const absl::Status status = ErrnoStatus(errno, "fork");
    RemoveFolder(folder);
    return status;
  }
  PrivateDaemon daemon(folder, pid);
  const std::string socket = SessionSocketPath(daemon.runtime_dir());
  const int64_t deadline = MonotonicNanos() + options.ready_timeout_ns;
  while (!shm::ConnectSession(socket).ok()) {
    int how = 0;
    if (waitpid(pid, &how, WNOHANG) == pid) {
      daemon.pid_ = 0;
      return absl::UnavailableError(absl::StrCat(binary, " ended at its start: ", LogTail(folder)));
    }
    if (MonotonicNanos() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(binary, " does not listen on ", socket, ": ", LogTail(folder)));
    }
    usleep(kPollUs);
  }
  return daemon;
}

PrivateDaemon::PrivateDaemon(PrivateDaemon&& other) noexcept
    : folder_(std::exchange(other.folder_, std::string())), pid_(std::exchange(other.pid_, 0)) {}

PrivateDaemon::~PrivateDaemon() {
  Stop();
  if (!folder_.empty()) RemoveFolder(folder_);
}

void PrivateDaemon::Stop() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  const int64_t deadline = MonotonicNanos() + kStopTimeoutNs;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (MonotonicNanos() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      break;
    }
    usleep(kPollUs);
  }
  pid_ = 0;
}

void Daemons::Use(uint32_t node) const {
  setenv("SPCCL_RUNTIME_DIR", runtime_dirs[node].c_str(), 1);
}

absl::StatusOr<Daemons> GetDaemons(const DaemonWish& wish) {
  Daemons daemons;
  if (!wish.runtime_dir.empty()) {
    daemons.runtime_dirs.push_back(wish.runtime_dir);
    return daemons;
  }
  for (uint32_t node = 1; node <= wish.nodes; ++node) {
    const auto fill_in = [node](const std::string& text) {
      return absl::StrReplaceAll(text, {{"{}", absl::StrCat(node)}});
    };
    PrivateDaemon::Options options{.binary = wish.binary, .arguments = {}, .launcher = {}};
    for (const std::string& argument : wish.arguments) {
      options.arguments.push_back(fill_in(argument));
    }
    const bool placed = std::any_of(
        options.arguments.begin(), options.arguments.end(),
        [](const std::string& argument) { return absl::StartsWith(argument, "--peers-listen"); });
    if (wish.nodes > 1 && !placed) options.arguments.emplace_back("--peers-listen=127.0.0.1:0");
    options.launcher = absl::StrSplit(fill_in(wish.launcher), ' ', absl::SkipEmpty());
    SPCCL_ASSIGN_OR_RETURN(PrivateDaemon daemon, PrivateDaemon::Start(options));
    daemons.runtime_dirs.push_back(daemon.runtime_dir());
    daemons.own.push_back(std::move(daemon));
  }
  return daemons;
}

}  // namespace spccl::bench
