#include "base/parse_number.h"

#include <charconv>
#include <limits>

namespace spccl {

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

}  // namespace spccl
