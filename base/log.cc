#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/timed_lock.h"
#include "base/unique_fd.h"
#include "base/utf8.h"

namespace spccl {
namespace {

std::atomic<LogLevel> g_least{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};

std::string UtcNow() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  ::gmtime_r(&now.tv_sec, &utc);
  char text[40];
  const size_t used = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + used, sizeof text - used, ".%06ldZ", now.tv_nsec / 1000);
  return text;
}

// The control character that `text`, which is UTF-8 there, begins with; of C1 too: terminals obey.
std::optional<unsigned> ControlAt(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7F) return first;
  if (first != 0xC2) return std::nullopt;
  const auto second = static_cast<unsigned char>(text[1]);
  return second < 0xA0 ? std::optional<unsigned>(second) : std::nullopt;
}

// Escapes what would break a line (control characters) or JSON (bytes that are not UTF-8): names
// and messages come from clients too. With `quotes`, also what would end a quoted string.
void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out->append("\\ufffd");
    } else if (const std::optional<unsigned> control = ControlAt(text)) {
      char escape[12];
      std::snprintf(escape, sizeof escape, "\\u%04x", *control);
      out->append(escape);
    } else {
      if (quotes && (c == '"' || c == '\\')) out->push_back('\\');
      out->append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendEscaped(text, /*quotes=*/true, out);
  out->push_back('"');
}

std::string TextLine(std::string_view level, std::string_view component, std::string_view message,
                     std::initializer_list<LogField> fields) {
  std::string line = UtcNow();
  line.append(" ").append(level).append(" ").append(component).append(": ");
  AppendEscaped(message, /*quotes=*/false, &line);
  for (const auto& [key, value] : fields) {
    line.append(" ").append(key).append("=");
    AppendQuoted(value, &line);
  }
  return line;
}

std::string JsonLine(std::string_view level, std::string_view component, std::string_view message,
                     std::initializer_list<LogField> fields) {
  std::string line = "{\"time\":\"" + UtcNow() + "\",\"level\":\"";
  line.append(level).append("\",\"component\":");
  AppendQuoted(component, &line);
  line.append(",\"message\":");
  AppendQuoted(message, &line);
  for (const auto& [key, value] : fields) {
    line.push_back(',');
    AppendQuoted(key, &line);
    line.push_back(':');
    AppendQuoted(value, &line);
  }
  line.push_back('}');
  return line;
}

std::string Line(LogLevel level, std::string_view component, std::string_view message,
                 std::initializer_list<LogField> fields) {
  const std::string_view name = kNames[static_cast<int>(level)];
  std::string line = g_format.load(std::memory_order_relaxed) == LogFormat::kJson
                         ? JsonLine(name, component, message, fields)
                         : TextLine(name, component, message, fields);
  line.push_back('\n');
  return line;
}

constexpr int kQueueBytes = 64 << 10;

// Writes each line that comes, however long that takes, until there are no more. `room` holds any.
void CopyLines(UniqueFd from, UniqueFd to, std::vector<char> room) {
  for (ssize_t got; (got = ::recv(from.get(), room.data(), room.size(), 0)) > 0;) {
    for (std::string_view left(room.data(), static_cast<size_t>(got)); !left.empty();) {
      pollfd ready{.fd = to.get(), .events = POLLOUT, .revents = 0};
      (void)::poll(&ready, 1, -1);
      const ssize_t written = ::write(to.get(), left.data(), left.size());
      if (written < 0 && errno != EAGAIN && errno != EINTR) return;
      if (written > 0) left.remove_prefix(static_cast<size_t>(written));
    }
  }
}

// What is written at once of some bytes, to a socket or to what does not block; -1: nothing.
ssize_t WriteTo(int fd, std::string_view bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(fd, bytes.data(), bytes.size());
}

// The standard error output, and what whoever reads it has missed.
class Output {
 public:
  void Write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    TellLost();
    if (lost_ > 0 || !WriteWhole(line)) ++lost_;
  }

  void Flush(int64_t timeout_ns) {
    const auto deadline = LockDeadline(std::chrono::nanoseconds(timeout_ns));
    std::future<void> copied;
    {
      const std::unique_lock lock(mutex_, deadline);
      if (!lock.owns_lock()) return;
      TellLost();
      own_.Reset();
      copied = std::move(copied_);
    }
    if (copied.valid()) (void)copied.wait_until(deadline);
  }

 private:
  void TellLost() {
    if (lost_ == 0) return;
    const std::string told = Line(LogLevel::kWarning, "log", "lines were lost: nobody read them",
                                  {{"lines", std::to_string(lost_)}});
    if (WriteWhole(told)) lost_ = 0;
  }

  // As WriteTo.
  ssize_t WriteNow(std::string_view bytes) {
    struct stat file {};
    (void)::fstat(STDERR_FILENO, &file);
    if (!S_ISCHR(file.st_mode) && !S_ISFIFO(file.st_mode)) return WriteTo(STDERR_FILENO, bytes);
    if (!own_.valid() || file.st_dev != device_ || file.st_ino != inode_) Open(file);
    const ssize_t written = WriteTo(own_.get(), bytes);
    if (written < 0 && (errno == EIO || errno == EPIPE)) own_.Reset();  // it has gone
    return written;
  }

  // A terminal may have room for less than the line, and others may write to a pipe. It is opened
  // anew, as not to block is of the open file, and others have this one; and kept, as descriptors
  // may run out. One of another user's may not be opened: then a thread waits for who reads it.
  void Open(const struct stat& file) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
    own_.Reset(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!own_.valid() && (errno == EACCES || errno == EPERM)) own_ = StartCopying();
  }

  // Gives the end of a socket, which holds what is not written yet. Invalid: there is none.
  UniqueFd StartCopying() {
    UniqueFd to(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    int ends[2];
    if (!to.valid() || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      return UniqueFd();
    }
    UniqueFd in(ends[0]), from(ends[1]);
    (void)::setsockopt(in.get(), SOL_SOCKET, SO_SNDBUF, &kQueueBytes, sizeof kQueueBytes);
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::vector<char> room(4 * kQueueBytes);  // a socket takes half of that at most
      std::promise<void> end;
      std::future<void> copied = end.get_future();
      std::thread([from = std::move(from), to = std::move(to), room = std::move(room),
                   end = std::move(end)]() mutable {
        CopyLines(std::move(from), std::move(to), std::move(room));
        end.set_value();
      }).detach();
      copied_ = std::move(copied);
    } catch (const std::exception&) {  // no thread, or no memory
      in.Reset();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return in;
  }

  bool WriteWhole(const std::string& line) {
    if (torn_ && WriteNow("\n") != 1) return false;
    torn_ = false;
    for (std::string_view left = line; !left.empty();) {
      const ssize_t written = WriteNow(left);
      if (written <= 0) return false;
      left.remove_prefix(static_cast<size_t>(written));
      torn_ = !left.empty();
    }
    return true;
  }

  std::timed_mutex mutex_;
  uint64_t lost_ = 0;
  bool torn_ = false;  // the last line was written in part
  // Of a terminal or a pipe, which these tell from others.
  UniqueFd own_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::future<void> copied_;  // by the thread, if there is one
};

// Never destroyed: threads may still log when the program exits.
Output& TheOutput() {
  static Output& output = *new Output;
  return output;
}

}  // namespace

void ConfigureLog(LogLevel least, LogFormat format) {
  g_least.store(least, std::memory_order_relaxed);
  g_format.store(format, std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view component, std::string_view message,
         std::initializer_list<LogField> fields) {
  if (level < g_least.load(std::memory_order_relaxed)) return;
  TheOutput().Write(Line(level, component, message, fields));
}

void FlushLog(int64_t timeout_ns) {
  TheOutput().Flush(timeout_ns);
}

}  // namespace spccl
