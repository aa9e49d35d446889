#include "tests/support/daemon_env.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

extern char** environ;

namespace spccl::testing {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Log(LogLevel::kError, "test", std::string(value.status().ToString()));
  SPCCL_CHECK(value.ok());
  return *std::move(value);
}

// The program beside the folder that this test lies in: bin/spccld of tests/x_test.
std::string DaemonPath() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "bin" / "spccld";
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments,
                            const std::string& log_path) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 2, log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
  // Should this test abort, the daemon lives on: it must not hold what the test runner reads.
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "posix_spawn " + arguments[0]);
  return pid;
}

}  // namespace

DaemonEnv::DaemonEnv(daemon::CoreOptions options, const daemon::CoreHooks* hooks,
                     daemon::Nodes* nodes)
    : settings_(
          ValueOrDie(daemon::SettingsStore::Create(folder_.path() + "/state", policy::Settings{}))),
      jobs_(ValueOrDie(daemon::JobTable::Create(folder_.path() + "/jobs"))) {
  options.runtime_dir = folder_.path();
  if (options.channels == 0) options.channels = 2;
  core_ = ValueOrDie(daemon::Core::Create(
      std::move(options), hooks != nullptr ? *hooks : daemon::HooksOf(settings_.get(), jobs_.get()),
      nodes));
}

absl::StatusOr<std::unique_ptr<SpawnedDaemon>> SpawnedDaemon::Start(
    std::vector<std::string> flags) {
  auto daemon = std::unique_ptr<SpawnedDaemon>(new SpawnedDaemon);
  const std::string& folder = daemon->folder_.path();
  std::vector<std::string> arguments = {DaemonPath(), "--runtime-dir", folder, "--state-dir",
                                        folder + "/state"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  SPCCL_ASSIGN_OR_RETURN(daemon->pid_, Spawn(arguments, daemon->log_path()));
  const int64_t deadline_ns = MonotonicNanos() + 20'000'000'000;
  // By its log, not by connecting: a session that comes and goes would be seen by the test.
  while (daemon->ReadLog().find("main: serving") == std::string::npos) {
    if (daemon->Wait(10).ok() || MonotonicNanos() > deadline_ns) {
      return absl::UnavailableError(absl::StrCat("spccld did not start: ", daemon->ReadLog()));
    }
  }
  return daemon;
}

SpawnedDaemon::~SpawnedDaemon() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string SpawnedDaemon::ReadLog() const {
  std::ifstream file(log_path());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void SpawnedDaemon::Signal(int signal) {
  ::kill(pid_, signal);
}

absl::StatusOr<int> SpawnedDaemon::Wait(int64_t timeout_ms) {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd.valid()) return ErrnoStatus(errno, "pidfd_open of spccld");
  pollfd query{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&query, 1, static_cast<int>(timeout_ms)) <= 0) {
    return absl::DeadlineExceededError("spccld still runs");
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace spccl::testing
