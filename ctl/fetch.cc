#include "ctl/fetch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ctl/client.h"

extern char** environ;

namespace spccl::ctl {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

// Until the descriptor is ready for that; false: it was not in time.
bool BecomesReady(int fd, short events, int64_t end_ns) {
  for (;;) {
    pollfd query{.fd = fd, .events = events, .revents = 0};
    const int64_t left_ms = (end_ns - MonotonicNanos()) / kNanosPerMs;
    const int ready = ::poll(&query, 1, static_cast<int>(std::max<int64_t>(0, left_ms)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

absl::StatusOr<UniqueFd> ConnectTcp(const sockaddr* address, socklen_t size, int64_t end_ns) {
  UniqueFd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  if (::connect(socket.get(), address, size) == 0) return socket;
  if (errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
  if (!BecomesReady(socket.get(), POLLOUT, end_ns)) return absl::DeadlineExceededError("connect");
  int error = 0;
  socklen_t error_size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &error_size);
  if (error != 0) return ErrnoStatus(error, "connect");
  return socket;
}

// To HOST:PORT, where all addresses and localhost are the loopback's.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& listen, int64_t end_ns) {
  const size_t colon = listen.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("found \"", listen, "\", expected HOST:PORT"));
  }
  if (port == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "metrics_listen is ", listen, ": the daemon took a free port, which its log names"));
  }
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[')) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    host = host.substr(1, host.size() - 2);
    if (::inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) {
      return absl::InvalidArgumentError(absl::StrCat("no address: ", host));
    }
    if (host == "::") address.sin6_addr = in6addr_loopback;
    return ConnectTcp(reinterpret_cast<sockaddr*>(&address), sizeof address, end_ns);
  }
  if (host == "localhost" || host == "0.0.0.0") host = "127.0.0.1";
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("no address: ", host));
  }
  return ConnectTcp(reinterpret_cast<sockaddr*>(&address), sizeof address, end_ns);
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, arguments[0]);
  return child;
}

}  // namespace

absl::StatusOr<std::string> ReadToEnd(int fd, const Bounds& bounds) {
  const int64_t end_ns = MonotonicNanos() + bounds.nanos;
  std::string text;
  while (text.size() < bounds.bytes) {
    if (!BecomesReady(fd, POLLIN, end_ns)) return absl::DeadlineExceededError("no end in time");
    std::array<char, 16384> block;
    const ssize_t got =
        ::read(fd, block.data(), std::min(block.size(), bounds.bytes - text.size()));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    if (got == 0) break;
    text.append(block.data(), static_cast<size_t>(got));
  }
  return text;
}

absl::StatusOr<Ended> RunProgram(const std::vector<std::string>& arguments, const Bounds& bounds) {
  const int64_t end_ns = MonotonicNanos() + bounds.nanos;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  SPCCL_ASSIGN_OR_RETURN(const pid_t child, Spawn(arguments, in.get()));
  in.Reset();
  absl::StatusOr<std::string> text = ReadToEnd(out.get(), bounds);
  // At the end of its output it is about to end, or will not say anything more.
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (text.ok() && text->size() < bounds.bytes && process.valid()) {
    BecomesReady(process.get(), POLLIN, end_ns);
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!text.ok()) return Annotate(text.status(), arguments[0]);
  return Ended{.output = *std::move(text),
               .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments,
                                     const Bounds& bounds) {
  SPCCL_ASSIGN_OR_RETURN(Ended ended, RunProgram(arguments, bounds));
  return std::move(ended.output);
}

absl::StatusOr<std::string> FetchMetrics(const std::string& listen, const std::string& runtime_dir,
                                         const Bounds& bounds) {
  if (listen.empty()) return absl::FailedPreconditionError("no metrics are served");
  const int64_t end_ns = MonotonicNanos() + bounds.nanos;
  absl::StatusOr<UniqueFd> socket =
      listen == "unix"              ? ConnectSocket(runtime_dir + "/metrics.sock", SOCK_STREAM)
      : listen.starts_with("unix:") ? ConnectSocket(listen.substr(5), SOCK_STREAM)
                                    : ConnectTo(listen, end_ns);
  if (!socket.ok()) return socket.status();
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
  if (::send(socket->get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return ErrnoStatus(errno, "send");
  }
  SPCCL_ASSIGN_OR_RETURN(const std::string answer, ReadToEnd(socket->get(), bounds));
  const size_t body = answer.find("\r\n\r\n");
  const std::string first = answer.substr(0, answer.find("\r\n"));
  if (body == std::string::npos || first.find(" 200 ") == std::string::npos) {
    return absl::UnavailableError(absl::StrCat("the daemon answers: ", first));
  }
  return answer.substr(body + 4);
}

}  // namespace spccl::ctl
