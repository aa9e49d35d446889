// Feeds the service manager's watchdog for as long as there is progress, and no longer.
//
// Called by the main thread in between signals. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/progress.h"

namespace spccl::daemon {

class Watchdog {
 public:
  // `progress` must not wait. `limit_ns`: notify::WatchdogLimitNanos(); 0: nobody watches, and only
  // the status line follows the progress.
  Watchdog(std::function<Progress()> progress, int64_t limit_ns);

  // Feeds it if that is due and there is progress. Returns how long to wait until the next turn.
  int64_t Turn(int64_t now_ns);

 private:
  const std::function<Progress()> progress_;
  const int64_t period_ns_;
  int64_t next_ns_ = 0;
  std::string told_ = "serving";  // the last status
};

}  // namespace spccl::daemon
