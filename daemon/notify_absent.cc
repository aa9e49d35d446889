// Of builds without libsystemd.
#include "daemon/notify.h"

namespace spccl::daemon::notify {

void Ready(const std::string&) {}
void Reloading() {}
void Stopping(int64_t) {}
void Watchdog() {}
void Status(const std::string&) {}
int64_t WatchdogLimitNanos() {
  return 0;
}

}  // namespace spccl::daemon::notify
