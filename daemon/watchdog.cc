#include "daemon/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "daemon/notify.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kUnwatchedPeriodNs = 1'000'000'000;
// One feeding may come late and the next still be in time.
constexpr int64_t kFeedingsPerLimit = 3;

}  // namespace

Watchdog::Watchdog(std::function<Progress()> progress, int64_t limit_ns)
    : progress_(std::move(progress)),
      period_ns_(limit_ns > 0 ? limit_ns / kFeedingsPerLimit : kUnwatchedPeriodNs) {}

int64_t Watchdog::Turn(int64_t now_ns) {
  if (now_ns < next_ns_) return next_ns_ - now_ns;
  next_ns_ = now_ns + period_ns_;
  const Progress progress = progress_();
  if (progress.healthy) notify::Watchdog();
  const std::string status =
      progress.healthy ? "serving" : absl::StrCat("UNHEALTHY: ", progress.detail);
  if (status != told_) {
    told_ = status;
    notify::Status(status);
    Log(progress.healthy ? LogLevel::kInfo : LogLevel::kError, "main",
        progress.healthy ? "progress again" : "no progress", {{"reason", progress.detail}});
  }
  return period_ns_;
}

}  // namespace spccl::daemon
