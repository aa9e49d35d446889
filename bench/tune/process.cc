#include "bench/tune/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

extern char** environ;

namespace spccl::tune {
namespace {

constexpr int64_t kGraceNs = 10'000'000'000;
constexpr int kPollMs = 100;

struct Pipe {
  UniqueFd read, write;
};
absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, int output, int errors) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", command[0]));
  return pid;
}

// Whether there may be more to read.
bool ReadSome(int fd, std::string* into) {
  char block[4096];
  const ssize_t got = ::read(fd, block, sizeof block);
  if (got > 0) into->append(block, static_cast<size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

// Sends SIGTERM, then SIGKILL, to the group when its time is over.
class Terminator {
 public:
  Terminator(pid_t pid, int64_t limit_ns, const std::atomic<bool>& interrupt)
      : pid_(pid), deadline_ns_(MonotonicNanos() + limit_ns), interrupt_(interrupt) {}
  void Look() {
    const int64_t now_ns = MonotonicNanos();
    // relaxed: the flag says all.
    if (told_ns_ == 0 && (interrupt_.load(std::memory_order_relaxed) || now_ns > deadline_ns_)) {
      told_ns_ = now_ns;
      ::kill(pid_, SIGTERM);  // the program, which stops what it has started
    } else if (told_ns_ != 0 && now_ns > told_ns_ + kGraceNs) {
      ::kill(-pid_, SIGKILL);
    }
  }
  bool told() const { return told_ns_ != 0; }

 private:
  const pid_t pid_;
  const int64_t deadline_ns_;
  const std::atomic<bool>& interrupt_;
  int64_t told_ns_ = 0;  // when it was told to end; 0: it was not
};

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return lines.empty() ? "it said nothing" : lines.back();
}

}  // namespace

ProcessEnd RunProcess(const std::vector<std::string>& command, int64_t limit_ns,
                      const std::atomic<bool>& interrupt) {
  absl::StatusOr<Pipe> output = MakePipe(), errors = MakePipe();
  if (!output.ok() || !errors.ok())
    return {.status = output.ok() ? errors.status() : output.status(), .output = {}};
  const absl::StatusOr<pid_t> pid = Spawn(command, output->write.get(), errors->write.get());
  output->write.Reset();
  errors->write.Reset();
  if (!pid.ok()) return {.status = pid.status(), .output = {}};
  Terminator terminator(*pid, limit_ns, interrupt);
  ProcessEnd end;
  std::string said;
  int how = 0;
  bool ended = false, lost = false;  // lost: nobody knows how, as where SIGCHLD is ignored
  pollfd fds[] = {{output->read.get(), POLLIN, 0}, {errors->read.get(), POLLIN, 0}};
  // Its end counts, not its pipes': what it has started may hold them.
  while (!ended) {
    const pid_t got = ::waitpid(*pid, &how, WNOHANG);
    lost = got < 0 && errno == ECHILD;
    ended = got == *pid || lost;
    ::poll(fds, 2, ended ? 0 : kPollMs);
    while (fds[0].revents != 0 || fds[1].revents != 0) {
      if (fds[0].revents != 0 && !ReadSome(fds[0].fd, &end.output)) fds[0].fd = -1;
      if (fds[1].revents != 0 && !ReadSome(fds[1].fd, &said)) fds[1].fd = -1;
      ::poll(fds, 2, 0);
    }
    if (fds[0].fd < 0 && fds[1].fd < 0 && !ended) ::usleep(kPollMs * 100);
    if (!ended) terminator.Look();
  }
  if (terminator.told()) ::kill(-*pid, SIGKILL);  // what it has left behind
  if (lost) {
    end.status = absl::InternalError(absl::StrCat(
        "it has ended, but its exit code is not known: SIGCHLD is ignored: ", LastLine(said)));
    return end;
  }
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return end;
  end.status =
      absl::InternalError(absl::StrCat(terminator.told() ? "stopped"
                                       : WIFEXITED(how)  ? absl::StrCat("exit ", WEXITSTATUS(how))
                                                         : absl::StrCat("signal ", WTERMSIG(how)),
                                       ": ", LastLine(said)));
  return end;
}

}  // namespace spccl::tune
