#include "daemon/config_values.h"

#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/toml.h"
#include "base/view.h"
#include "collective/policy/settings.h"

namespace spccl::daemon {
namespace {

constexpr int64_t kMaxDurationNs = int64_t{365} * 24 * 3600 * 1'000'000'000;

}  // namespace

bool ParseInteger(std::string_view text, uint64_t least, uint64_t most, uint64_t* out) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (value < least || value > most) return false;
  *out = value;
  return true;
}

bool ParseBytes(std::string_view text, uint64_t least, uint64_t* out) {
  if (text.ends_with("iB")) {
    text.remove_suffix(2);
    if (text.empty() || (text.back() >= '0' && text.back() <= '9')) return false;
  }
  constexpr std::string_view kUnits = "KMGT";
  int shift = 0;
  if (!text.empty() && kUnits.find(text.back()) != std::string_view::npos) {
    shift = 10 * static_cast<int>(kUnits.find(text.back()) + 1);
    text.remove_suffix(1);
  }
  const uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) >> shift;
  if (!ParseInteger(text, least, most, out)) return false;
  *out <<= shift;
  return true;
}

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
