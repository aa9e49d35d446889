#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>

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

// Escapes what would break a line or a JSON string: quotes, backslashes and control characters.
void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out->append(escape);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

std::string TextLine(std::string_view level, std::string_view component, std::string_view message,
                     std::initializer_list<LogField> fields) {
  std::string line = UtcNow();
  line.append(" ").append(level).append(" ").append(component).append(": ").append(message);
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

}  // namespace

void ConfigureLog(LogLevel least, LogFormat format) {
  g_least.store(least, std::memory_order_relaxed);
  g_format.store(format, std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view component, std::string_view message,
         std::initializer_list<LogField> fields) {
  if (level < g_least.load(std::memory_order_relaxed)) return;
  const std::string_view name = kNames[static_cast<int>(level)];
  std::string line = g_format.load(std::memory_order_relaxed) == LogFormat::kJson
                         ? JsonLine(name, component, message, fields)
                         : TextLine(name, component, message, fields);
  line.push_back('\n');
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace spccl
