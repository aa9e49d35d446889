// What the daemon tells the service manager that started it, by sd_notify's protocol. Where there
// is none (NOTIFY_SOCKET is not set), or in a build without libsystemd, nothing is told.
#pragma once

#include <cstdint>
#include <string>

namespace spccl::daemon::notify {

// It serves: after the start, and after a reload.
void Ready(const std::string& status);
// It reads its configuration again; Ready() ends it.
void Reloading();
// It stops, and needs up to `limit_ns` from now.
void Stopping(int64_t limit_ns);
// It makes progress.
void Watchdog();
// One line for people.
void Status(const std::string& status);

// How long the service manager waits for a Watchdog() before it takes the daemon for dead; 0: it
// does not watch this process.
int64_t WatchdogLimitNanos();

}  // namespace spccl::daemon::notify
