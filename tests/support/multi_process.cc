#include "tests/support/multi_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "base/clock.h"
#include "base/status.h"

namespace spccl::testing {
namespace {

[[noreturn]] void RunChild(int rank, int write_fd, const MultiProcess::Body& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const MultiProcess::Report report = [write_fd](const std::string& text) {
    SPCCL_CHECK(::write(write_fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  int code = 125;
  try {
    code = body(rank, report);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d threw: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);  // no atexit handlers: they belong to the test program
}

}  // namespace

MultiProcess::MultiProcess(int ranks, Body body) : children_(ranks) {
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    SPCCL_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t pid = ::fork();
    SPCCL_CHECK(pid >= 0);
    if (pid == 0) {
      ::close(ends[0]);
      RunChild(rank, ends[1], body);
    }
    ::close(ends[1]);
    children_[rank].pid = pid;
    children_[rank].report_fd = ends[0];
  }
}

MultiProcess::~MultiProcess() {
  for (Child& child : children_) {
    if (!child.reaped) {
      ::kill(child.pid, SIGKILL);
      Reap(child);
    }
    if (child.report_fd >= 0) ::close(child.report_fd);
  }
}

void MultiProcess::Kill(int rank, int signal) {
  if (!children_[rank].reaped) ::kill(children_[rank].pid, signal);
}

bool MultiProcess::ReadSome(int64_t timeout_ms) {
  std::vector<pollfd> polls;
  std::vector<Child*> owners;
  for (Child& child : children_) {
    if (child.report_fd < 0) continue;
    polls.push_back({.fd = child.report_fd, .events = POLLIN, .revents = 0});
    owners.push_back(&child);
  }
  if (polls.empty()) return false;
  const int ready = ::poll(polls.data(), polls.size(), static_cast<int>(timeout_ms));
  if (ready == 0) return false;
  if (ready < 0) return errno == EINTR;
  for (size_t i = 0; i < polls.size(); ++i) {
    if (polls[i].revents == 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(polls[i].fd, buffer, sizeof buffer);
    if (got > 0) {
      owners[i]->end.output.append(buffer, static_cast<size_t>(got));
    } else {
      ::close(polls[i].fd);
      owners[i]->report_fd = -1;
    }
  }
  return true;
}

bool MultiProcess::AwaitReport(int rank, const std::string& text, int64_t timeout_ms) {
  const int64_t deadline_ns = MonotonicNanos() + timeout_ms * 1'000'000;
  Child& child = children_[rank];
  while (child.end.output.find(text) == std::string::npos) {
    const int64_t left_ms = (deadline_ns - MonotonicNanos()) / 1'000'000;
    if (child.report_fd < 0 || left_ms <= 0 || !ReadSome(left_ms)) return false;
  }
  return true;
}

void MultiProcess::Reap(Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.reaped = true;
  child.end.exited = WIFEXITED(status);
  if (WIFEXITED(status)) child.end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.end.signal = WTERMSIG(status);
}

std::vector<ProcessEnd> MultiProcess::Wait(int64_t timeout_ms) {
  // A child's report pipe closes when it ends, so its hang-up is the news of its end.
  const int64_t deadline_ns = MonotonicNanos() + timeout_ms * 1'000'000;
  for (;;) {
    const int64_t left_ms = (deadline_ns - MonotonicNanos()) / 1'000'000;
    if (left_ms <= 0 || !ReadSome(left_ms)) break;
  }
  std::vector<ProcessEnd> ends;
  for (Child& child : children_) {
    if (!child.reaped) {
      if (child.report_fd >= 0) {
        child.end.timed_out = true;
        ::kill(child.pid, SIGKILL);
      }
      Reap(child);
    }
    ends.push_back(child.end);
  }
  return ends;
}

bool AllSucceeded(const std::vector<ProcessEnd>& ends) {
  bool all = true;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    const ProcessEnd& end = ends[rank];
    if (end.exited && end.exit_code == 0) continue;
    all = false;
    std::fprintf(stderr, "rank %zu: exit code %d, signal %d%s; it reported: %s\n", rank,
                 end.exit_code, end.signal, end.timed_out ? " (killed at the deadline)" : "",
                 end.output.c_str());
  }
  return all;
}

}  // namespace spccl::testing
