// One line a message on stderr, as text or as JSON.
//
// An error is logged once, where it is first known; after that it is only passed on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace spccl {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };
using LogField = std::pair<std::string_view, std::string>;

// Sets what is written and how, for the whole process. Thread-safe.
void ConfigureLog(LogLevel least, LogFormat format);

// Writes one line: time, level, component, message, then each field as key=value. Thread-safe; a
// line of at most PIPE_BUF bytes is written by one write(2), so those of several processes do not
// mix. Never waits for whoever reads the log: what there is no room for is lost, and once there is
// some again a line says how many were. Control
// characters and bytes that are not UTF-8 are escaped: what a client sends cannot forge a line.
void Log(LogLevel level, std::string_view component, std::string_view message,
         std::initializer_list<LogField> fields = {});

// Before the process ends: waits so long at most for what a thread has yet to write, to a terminal
// or a pipe of another user's. What is not written by then is lost.
void FlushLog(int64_t timeout_ns = 1'000'000'000);

}  // namespace spccl
