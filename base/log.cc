#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>

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

// Escapes what would break a line (control characters) or JSON (bytes that are not UTF-8): names
// and messages come from clients too. With `quotes`, also what would end a quoted string.
void AppendEscaped(std::string_view text, bool quotes, std::string* out) {
  while (!text.empty()) {
    const unsigned char c = static_cast<unsigned char>(text.front());
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out->append("\\ufffd");
    } else if (c < 0x20 || c == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
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

// What is written at once of some bytes; -1: nothing.
ssize_t WriteNow(std::string_view bytes) {
  struct stat file {};
  (void)::fstat(STDERR_FILENO, &file);
  if (S_ISSOCK(file.st_mode)) {
    return ::send(STDERR_FILENO, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (S_ISCHR(file.st_mode) || S_ISFIFO(file.st_mode)) {
    // A terminal may have room for less than the line, and others may write to a pipe. It is opened
    // anew, as not to block is of the open file, and others have this one.
    const UniqueFd anew(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (anew.valid()) return ::write(anew.get(), bytes.data(), bytes.size());
  }
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return -1;
  return ::write(STDERR_FILENO, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
}

// What whoever reads the log has missed.
class Output {
 public:
  void Write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (lost_ > 0) {
      const std::string told = Line(LogLevel::kWarning, "log", "lines were lost: nobody read them",
                                    {{"lines", std::to_string(lost_)}});
      if (WriteWhole(told)) lost_ = 0;
    }
    if (lost_ > 0 || !WriteWhole(line)) ++lost_;
  }

 private:
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

  std::mutex mutex_;
  uint64_t lost_ = 0;
  bool torn_ = false;  // the last line was written in part
};

Output g_output;

}  // namespace

void ConfigureLog(LogLevel least, LogFormat format) {
  g_least.store(least, std::memory_order_relaxed);
  g_format.store(format, std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view component, std::string_view message,
         std::initializer_list<LogField> fields) {
  if (level < g_least.load(std::memory_order_relaxed)) return;
  g_output.Write(Line(level, component, message, fields));
}

}  // namespace spccl
