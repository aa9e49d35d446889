#include "base/toml.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

// The parser reports by value here: nothing of the project throws.
#define TOML_EXCEPTIONS 0
// It asserts, and in release builds tells the compiler to assume, what damaged text breaks ("[!");
// its next check finds that. Without NDEBUG it asserts only, and this asserts nothing.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#include "base/view.h"
#include "toml++/toml.h"

namespace spccl {
namespace {

std::string FloatText(double value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

TomlPlace PlaceOf(const toml::source_region& source) {
  return {.line = source.begin.line, .column = source.begin.column};
}

void SetScalar(TomlType type, std::string_view kind, std::string text, TomlValue* out) {
  out->type = type;
  // 1.0, which is no integer, must not look like one.
  const bool bare = type == TomlType::kFloat && text.find_first_of(".en") == std::string::npos;
  out->found = absl::StrCat("the ", View(kind), " ",
                            type == TomlType::kString ? QuoteToml(text) : text, bare ? ".0" : "");
  out->text = std::move(text);
}

void Describe(const toml::node& node, TomlValue* out) {
  if (const auto* text = node.as_string()) {
    SetScalar(TomlType::kString, "string", text->get(), out);
  } else if (const auto* integer = node.as_integer()) {
    SetScalar(TomlType::kInteger, "integer", absl::StrCat(integer->get()), out);
  } else if (const auto* number = node.as_floating_point()) {
    SetScalar(TomlType::kFloat, "number", FloatText(number->get()), out);
  } else if (const auto* boolean = node.as_boolean()) {
    SetScalar(TomlType::kBoolean, "boolean", boolean->get() ? "true" : "false", out);
  } else {
    out->type = node.is_table() ? TomlType::kTable : TomlType::kOther;
    out->found = node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time";
  }
}

void Flatten(const toml::table& table, const std::vector<std::string>& prefix,
             std::vector<TomlValue>* out) {
  for (const auto& [key, node] : table) {
    TomlValue value;
    value.path = prefix;
    value.path.emplace_back(key.str());
    if (const toml::table* inner = node.as_table(); inner != nullptr && !inner->empty()) {
      Flatten(*inner, value.path, out);
      continue;
    }
    value.key = PlaceOf(key.source());
    value.value = PlaceOf(node.source());
    Describe(node, &value);
    out->push_back(std::move(value));
  }
}

// Whether a line has a key of more parts than that. The parser bounds how deep values are nested,
// but not tables by such keys, which it and we go through by recursion.
bool IsTooDeep(std::string_view line) {
  constexpr int kMostDots = 64;
  int dots = 0;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return false;
    } else if (c == '.') {
      if (++dots > kMostDots) return true;
    } else if (std::strchr("=,{[", c) != nullptr) {
      dots = 0;  // of a value, or of a key in an inline table
    }
  }
  return false;
}

}  // namespace

absl::Status TomlError(std::string_view path, TomlPlace place, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(View(path), ":", place.line, ":", place.column, ": ", View(message)));
}

std::string DottedName(const std::vector<std::string>& path) {
  return absl::StrJoin(path, ".");
}

std::string QuoteToml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

absl::StatusOr<std::vector<TomlValue>> ReadToml(std::string_view text, std::string_view path) {
  TomlPlace place{.line = 1, .column = 1};
  for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
    if (IsTooDeep({line.data(), line.size()})) {
      return TomlError(path, place, "a key of too many parts, expected 65 at most");
    }
    ++place.line;
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return TomlError(path, PlaceOf(parsed.error().source()),
                     absl::StrCat("not TOML: ", View(parsed.error().description())));
  }
  std::vector<TomlValue> values;
  Flatten(parsed.table(), {}, &values);
  std::stable_sort(values.begin(), values.end(), [](const TomlValue& a, const TomlValue& b) {
    return std::tie(a.key.line, a.key.column) < std::tie(b.key.line, b.key.column);
  });
  return values;
}

}  // namespace spccl
