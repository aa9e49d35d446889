#include "daemon/reload.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config_fields.h"

namespace spccl::daemon {
namespace {

constexpr std::string_view kLive[] = {
    "log.level",          "log.format",      "op_timeout",           "init_timeout",
    "stop_timeout",       "limits.sessions", "limits.communicators", "limits.buffers",
    "limits.buffer_bytes"};

}  // namespace

bool IsLive(const std::string& field) {
  // What holds where no scope says otherwise.
  if (field.starts_with("jobs.")) return true;
  if (field == "algorithm" || field == "codec" || field.starts_with("thresholds.")) return true;
  return std::find(std::begin(kLive), std::end(kLive), field) != std::end(kLive);
}

std::vector<std::string> FieldsThatNeedRestart(const Config& now, const Config& next) {
  std::vector<std::string> names;
  for (const Field& field : FieldTable()) {
    if (IsLive(field.info.name) || field.show(now) == field.show(next)) continue;
    names.push_back(field.info.name);
  }
  return names;
}

absl::Status CheckReload(const CommandLine& now, const CommandLine& next) {
  if (!now.file.empty() && next.file.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(now.file, " is not there any more: a restart without it takes the defaults"));
  }
  const std::vector<std::string> fixed = FieldsThatNeedRestart(now.config, next.config);
  if (fixed.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("needs a restart to change: ", absl::StrJoin(fixed, ", ")));
}

}  // namespace spccl::daemon
