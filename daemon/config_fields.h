// The table of configuration fields, and how a text becomes a value. Internal to the configuration
// and the settings store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/toml.h"
#include "daemon/config.h"
#include "daemon/config_values.h"

namespace spccl::daemon {

struct Field {
  FieldInfo info;
  std::vector<TomlType> types;  // that the file may hold
  // Both forms of a value: `set` is false (and *config unchanged) where the text is not what
  // info.expected says; `show` is TOML.
  std::function<bool(std::string_view text, Config* config)> set;
  std::function<std::string(const Config& config)> show;
};
const std::vector<Field>& FieldTable();

// `name` is the key in the file; the flag follows from it, the default from `show`.
Field MakeField(std::string_view name, std::string_view help, std::string expected,
                std::vector<TomlType> types, std::function<bool(std::string_view, Config*)> set,
                std::function<std::string(const Config&)> show);
// config_fields_jobs.cc
void AddJobFields(std::vector<Field>* fields);
void AddGpuFields(std::vector<Field>* fields);  // config_fields_gpu.cc

// What is wrong with fields together that are right each by itself.
struct Clash {
  const Field* field;   // the one to point at
  std::string message;  // "peers.listen: found ..., expected ..."
};
std::optional<Clash> FindClash(const Config& config);

// Null where no field has this name.
const Field* FindField(std::string_view name);

// Whether the value's TOML type is one of the field's.
bool Accepts(const Field& field, TomlType type);

// The message for a value that was refused: "log.level: found the string "x", expected ...".
std::string Refusal(const Field& field, std::string_view found);

// The candidate with the fewest edits to `name`, if they are few; else empty.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace spccl::daemon
