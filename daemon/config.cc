#include "daemon/config.h"

#include <unistd.h>

#include <map>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/toml.h"
#include "base/view.h"
#include "daemon/config_fields.h"
#include "daemon/file_io.h"

namespace spccl::daemon {
namespace {

std::string Unknown(std::string_view kind, const std::string& name,
                    const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return absl::StrCat("unknown ", View(kind), " ", name,
                      nearest.empty() ? "" : "; the nearest known one is ", nearest);
}

// Whether some field's name goes on after this one: "log" of "log.level".
bool IsPrefix(std::string_view name) {
  const std::string prefix = absl::StrCat(View(name), ".");
  for (const FieldInfo& field : ConfigFields()) {
    if (field.name.starts_with(prefix)) return true;
  }
  return false;
}

absl::Status ApplyValue(const TomlValue& value, std::string_view path, Config* config) {
  const std::string name = DottedName(value.path);
  const Field* field = FindField(name);
  if (field == nullptr) {
    if (IsPrefix(name)) {
      if (value.type == TomlType::kTable) return absl::OkStatus();
      return TomlError(path, value.value,
                       absl::StrCat(name, ": found ", value.found, ", expected a table"));
    }
    std::vector<std::string> known;
    for (const FieldInfo& info : ConfigFields()) known.push_back(info.name);
    return TomlError(path, value.key, Unknown("field", name, known));
  }
  if (!Accepts(*field, value.type) || !field->set(value.text, config)) {
    return TomlError(path, value.value, Refusal(*field, value.found));
  }
  return absl::OkStatus();
}

absl::Status ApplyFile(const std::string& path, Config* config) {
  SPCCL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ApplyConfigText(text, path, config);
}

// CLI11 takes the next argument for the value of `--name=`. In place of nothing it is given what no
// argument can be.
constexpr std::string_view kEmptyValue("\0", 1);

std::string ValueOf(const std::string& given) {
  return given == kEmptyValue ? std::string() : given;
}

struct Flags {
  std::map<const Field*, std::string> values;  // of the fields that flags name
  std::string config_path;
  bool print_config = false;
};

void AddFlags(CLI::App* app, Flags* flags, std::map<const Field*, CLI::Option*>* options) {
  app->add_option("--config", flags->config_path, "Configuration file (TOML).")->type_name("FILE");
  app->add_flag("--print-config", flags->print_config,
                "Print the whole configuration as a file, and end.");
  for (const Field& field : FieldTable()) {
    std::string* value = &flags->values[&field];
    const std::string help = absl::StrCat(field.info.help, " Default: ", field.info.default_value);
    const bool boolean = Accepts(field, TomlType::kBoolean);
    (*options)[&field] = boolean
                             ? app->add_flag(field.info.flag, *value, help)
                             : app->add_option(field.info.flag, *value, help)->type_name("VALUE");
  }
}

// From the last to the first, as CLI11 takes them.
std::vector<std::string> ArgumentsOf(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    std::string& argument = arguments.emplace_back(argv[i]);
    if (argument.starts_with("--") && argument.find('=') + 1 == argument.size()) {
      argument.append(kEmptyValue);
    }
  }
  return arguments;
}

absl::Status ApplyFlags(const Flags& flags, const std::map<const Field*, CLI::Option*>& options,
                        Config* config) {
  for (const Field& field : FieldTable()) {
    if (options.at(&field)->count() == 0) continue;
    const std::string text = ValueOf(flags.values.at(&field));
    if (!field.set(text, config)) {
      return absl::InvalidArgumentError(absl::StrCat(field.info.flag, ": found ", QuoteToml(text),
                                                     ", expected ", field.info.expected));
    }
  }
  return absl::OkStatus();
}

// Fields that do not go together, with the place of the one to change.
absl::Status CheckTogether(const Config& config,
                           const std::map<const Field*, CLI::Option*>& options,
                           const std::string& file) {
  const std::optional<Clash> clash = FindClash(config);
  if (!clash.has_value()) return absl::OkStatus();
  if (options.at(clash->field)->count() == 0 && !file.empty()) {
    SPCCL_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    SPCCL_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text, file));
    for (const TomlValue& value : values) {
      if (DottedName(value.path) != clash->field->info.name) continue;
      return TomlError(file, value.value, clash->message);
    }
  }
  return absl::InvalidArgumentError(clash->message);
}

std::string DescribeParseError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty() || !std::string_view(extras.front()).starts_with("--")) return error.what();
  std::vector<std::string> known = {"--config", "--print-config", "--help", "--version"};
  for (const FieldInfo& field : ConfigFields()) known.push_back(field.flag);
  const std::string name = extras.front().substr(0, extras.front().find('='));
  return Unknown("flag", name, known);
}

}  // namespace

std::span<const FieldInfo> ConfigFields() {
  static const std::vector<FieldInfo>* const infos = [] {
    auto* list = new std::vector<FieldInfo>;
    for (const Field& field : FieldTable()) list->push_back(field.info);
    return list;
  }();
  return *infos;
}

absl::Status ApplyConfigText(std::string_view text, std::string_view path, Config* config) {
  SPCCL_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text, path));
  Config changed = *config;
  for (const TomlValue& value : values) {
    SPCCL_RETURN_IF_ERROR(ApplyValue(value, path, &changed));
  }
  *config = std::move(changed);
  return absl::OkStatus();
}

std::string PrintConfig(const Config& config) {
  std::string text;
  for (const Field& field : FieldTable()) {
    absl::StrAppend(&text, "# ", field.info.help, " Expected: ", field.info.expected, ".\n",
                    field.info.name, " = ", field.show(config), "\n");
  }
  return text;
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv,
                                             std::string_view version,
                                             std::string_view default_path) {
  CLI::App app("The spccl daemon: runs the collectives of a node's processes.", "spccld");
  app.set_version_flag("--version", absl::StrCat("spccld ", View(version)));
  Flags flags;
  std::map<const Field*, CLI::Option*> options;
  AddFlags(&app, &flags, &options);
  CommandLine command;
  const auto answer = [&command](std::string output) {
    command.run = false;
    command.output = std::move(output);
    return command;
  };
  try {
    app.parse(ArgumentsOf(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return answer(app.help());
  } catch (const CLI::CallForVersion&) {
    return answer(absl::StrCat("spccld ", View(version), "\n"));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(DescribeParseError(app, error));
  }
  std::string& file = command.file;
  file = ValueOf(flags.config_path);
  if (file.empty() && ::access(std::string(default_path).c_str(), F_OK) == 0) {
    file = std::string(default_path);
  }
  if (!file.empty()) SPCCL_RETURN_IF_ERROR(ApplyFile(file, &command.config));
  SPCCL_RETURN_IF_ERROR(ApplyFlags(flags, options, &command.config));
  SPCCL_RETURN_IF_ERROR(CheckTogether(command.config, options, file));
  if (flags.print_config) return answer(PrintConfig(command.config));
  return command;
}

}  // namespace spccl::daemon
