#include "ctl/daemon_config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/toml.h"
#include "ctl/fetch.h"

namespace spccl::ctl {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// Flags by their names without the dashes; one without a value is a switch.
std::map<std::string, std::string> FlagsIn(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> flags;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) continue;
    const std::string flag = arguments[i].substr(2);
    const size_t equals = flag.find('=');
    if (equals != std::string::npos) {
      flags[flag.substr(0, equals)] = flag.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      flags[flag] = arguments[++i];
    } else {
      flags[flag] = "true";
    }
  }
  return flags;
}

// The fields whose flags this tool looks for under their own names.
constexpr const char* kFields[] = {
    "runtime_dir",     "state_dir",    "admin_group",    "metrics_listen", "peers.listen",
    "peers.advertise", "peers.tls_ca", "peers.tls_cert", "peers.tls_key",  "peers.munge"};

std::string FlagOf(const std::string& field) {
  return absl::StrReplaceAll(field, {{".", "-"}, {"_", "-"}});
}

absl::Status ReadFields(DaemonConfig* config) {
  SPCCL_ASSIGN_OR_RETURN(const std::string text, ReadFile(config->path, kMostBytes));
  SPCCL_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text, config->path));
  for (const TomlValue& value : values) {
    if (value.type == TomlType::kTable) continue;
    config->fields[DottedName(value.path)] = value.text;
  }
  return absl::OkStatus();
}

}  // namespace

std::string DaemonConfig::Get(const std::string& name, const std::string& otherwise) const {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : found->second;
}

std::string DaemonConfig::Text() const {
  std::string text =
      path.empty() ? "# no file: defaults and flags\n" : absl::StrCat("# ", path, " and flags\n");
  for (const auto& [name, value] : fields)
    absl::StrAppend(&text, name, " = ", QuoteToml(value), "\n");
  return text;
}

absl::StatusOr<DaemonConfig> ReadDaemonConfig(const Machine& machine, std::optional<pid_t> daemon,
                                              std::string path) {
  std::map<std::string, std::string> flags;
  if (daemon) {
    const auto arguments = ArgumentsOf(machine, *daemon);
    if (arguments) flags = FlagsIn(*arguments);
  }
  if (path.empty() && flags.contains("config")) {
    path = flags["config"];
    if (!path.starts_with('/')) path = absl::StrCat(machine.proc, "/", *daemon, "/cwd/", path);
  }
  DaemonConfig config;
  struct stat info;
  const std::string usual = machine.etc + "/spccl/spccld.toml";
  if (path.empty() && ::stat(usual.c_str(), &info) == 0) path = usual;
  config.path = path;
  if (!path.empty()) SPCCL_RETURN_IF_ERROR(ReadFields(&config));
  for (const char* field : kFields) {
    const auto found = flags.find(FlagOf(field));
    if (found != flags.end()) config.fields[field] = found->second;
  }
  return config;
}

std::string DaemonProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* place : {"spccld", "../sbin/spccld"}) {
    const std::string program = (self.parent_path() / place).string();
    if (!error && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return "spccld";
}

absl::Status AskDaemonProgram(const std::string& program, const std::string& path) {
  constexpr int kRefused = 1;
  constexpr absl::string_view kSpeaker = "spccld: ";
  const absl::StatusOr<Ended> ended = RunProgram({program, "--config", path, "--print-config"}, {});
  if (!ended.ok()) return absl::UnavailableError(ended.status().message());
  if (ended->exit_code == 0) return absl::OkStatus();
  absl::string_view said = absl::StripAsciiWhitespace(ended->output);
  if (ended->exit_code == kRefused && absl::ConsumePrefix(&said, kSpeaker)) {
    return absl::InvalidArgumentError(said);
  }
  return absl::UnavailableError(
      absl::StrCat(program, " --print-config ended with ", ended->exit_code));
}

}  // namespace spccl::ctl
