// A TOML document as a flat list of values with their places, for readers that check every key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace spccl {

enum class TomlType : uint8_t { kString, kInteger, kFloat, kBoolean, kTable, kOther };

struct TomlPlace {
  uint32_t line = 0, column = 0;  // from 1
};

struct TomlValue {
  std::vector<std::string> path;  // {"log", "level"}
  TomlType type;                  // kTable only for a table with nothing in it
  std::string text;               // a string's content; a number or boolean as TOML writes it
  std::string found;              // for messages: `the string "loud"`
  TomlPlace key, value;
};

// Every value of the document, in the order of its places. InvalidArgument where `text` is not
// TOML: "PATH:LINE:COLUMN: ...". `path` is used for messages only.
absl::StatusOr<std::vector<TomlValue>> ReadToml(std::string_view text, std::string_view path);

// "log.level"
std::string DottedName(const std::vector<std::string>& path);
// A string as TOML writes it, in double quotes.
std::string QuoteToml(std::string_view text);
// InvalidArgument "PATH:LINE:COLUMN: message".
absl::Status TomlError(std::string_view path, TomlPlace place, std::string_view message);

}  // namespace spccl
