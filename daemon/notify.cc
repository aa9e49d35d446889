#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace spccl::daemon::notify {
namespace {

constexpr int64_t kNanosPerMicro = 1000;
constexpr int kKeepEnvironment = 0;  // as further messages follow

// A failure is not an error of ours, and nobody is there to hear of it.
void Tell(const std::string& state) {
  ::sd_notify(kKeepEnvironment, state.c_str());
}

}  // namespace

void Ready(const std::string& status) {
  Tell(absl::StrCat("READY=1\nSTATUS=", status));
}

void Reloading() {
  // The time stamp lets the manager tell this reload from one before.
  Tell(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicNanos() / kNanosPerMicro,
                    "\nSTATUS=reading the configuration again"));
}

void Stopping(int64_t limit_ns) {
  // The configuration says how long operations may still run, the unit file cannot know it.
  Tell(absl::StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=", limit_ns / kNanosPerMicro,
                    "\nSTATUS=stopping: running operations may end"));
}

void Watchdog() {
  Tell("WATCHDOG=1");
}

void Status(const std::string& status) {
  Tell(absl::StrCat("STATUS=", status));
}

int64_t WatchdogLimitNanos() {
  uint64_t micros = 0;
  if (::sd_watchdog_enabled(kKeepEnvironment, &micros) <= 0) return 0;
  return static_cast<int64_t>(micros) * kNanosPerMicro;
}

}  // namespace spccl::daemon::notify
