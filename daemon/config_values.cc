#include "daemon/config_values.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/toml.h"
#include "base/view.h"
#include "collective/policy/settings.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kMaxDurationNs = int64_t{365} * 24 * 3600 * 1'000'000'000;

}  // namespace

std::string ShowBytes(uint64_t bytes) {
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes)
                   : absl::StrCat("\"", bytes, View("KMGT").substr(unit - 1, 1), "iB\"");
}

bool ParseDuration(std::string_view text, int64_t* out) {
  absl::Duration duration;
  if (!absl::ParseDuration(View(text), &duration)) return false;
  if (duration < absl::Milliseconds(1) || duration > absl::Nanoseconds(kMaxDurationNs))
    return false;
  *out = absl::ToInt64Nanoseconds(duration);
  return true;
}

bool ParseThreshold(std::string_view text, double* threshold) {
  if (text == "auto") {
    *threshold = policy::kAutoThreshold;
    return true;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(value >= 0 && value <= 1)) return false;  // NaN is refused too
  *threshold = value;
  return true;
}

std::string ShowThreshold(double value) {
  return value == policy::kAutoThreshold ? QuoteToml("auto") : ShowNumber(value);
}

std::string ShowNumber(double value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

}  // namespace spccl::daemon
