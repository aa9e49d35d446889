#include "daemon/config_fields.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/find_group.h"
#include "base/parse_number.h"
#include "base/view.h"
#include "daemon/metrics/listen_address.h"
#include "daemon/peers/address.h"

namespace spccl::daemon {
namespace {

constexpr size_t kMaxPathBytes = 90;  // a socket's address holds 107 bytes, its name included

bool GroupExists(const std::string& name) {
  uint64_t number;
  if (ParseInteger(name, 0, std::numeric_limits<uint32_t>::max() - 1, &number)) return true;
  const absl::StatusOr<std::optional<gid_t>> found = FindGroup(name);
  return found.ok() && found->has_value();
}

}  // namespace

Field MakeField(std::string_view name, std::string_view help, std::string expected,
                std::vector<TomlType> types, std::function<bool(std::string_view, Config*)> set,
                std::function<std::string(const Config&)> show) {
  FieldInfo info{
      .name = std::string(name),
      .flag = absl::StrCat("--", absl::StrReplaceAll(View(name), {{".", "-"}, {"_", "-"}})),
      .expected = std::move(expected),
      .help = std::string(help),
      .default_value = show(Config{})};
  return Field{std::move(info), std::move(types), std::move(set), std::move(show)};
}

namespace {

Field Path(std::string_view name, std::string_view help, std::string Config::*at,
           bool optional = false) {
  return MakeField(
      name, help,
      absl::StrCat("an absolute path of at most ", kMaxPathBytes, " bytes",
                   optional ? ", or an empty string" : ""),
      {TomlType::kString},
      [at, optional](std::string_view text, Config* config) {
        if (optional && text.empty()) {
          (config->*at).clear();
          return true;
        }
        if (!text.starts_with('/') || text.size() > kMaxPathBytes) return false;
        if (text.find('\0') != std::string_view::npos) return false;
        config->*at = std::string(text);
        return true;
      },
      [at](const Config& config) { return QuoteToml(config.*at); });
}

template <typename T>
Field Unsigned(std::string_view name, std::string_view help, uint64_t least, uint64_t most,
               T Config::*at) {
  return MakeField(
      name, help, absl::StrCat("an integer from ", least, " to ", most), {TomlType::kInteger},
      [=](std::string_view text, Config* config) {
        uint64_t value = 0;
        if (!ParseInteger(text, least, most, &value)) return false;
        config->*at = static_cast<T>(value);
        return true;
      },
      [at](const Config& config) { return absl::StrCat(config.*at); });
}

Field Duration(std::string_view name, std::string_view help, int64_t Config::*at) {
  return MakeField(
      name, help, "a duration from 1ms to a year, with its unit: \"500ms\", \"30s\", \"1h30m\"",
      {TomlType::kString},
      [at](std::string_view text, Config* config) { return ParseDuration(text, &(config->*at)); },
      [at](const Config& config) {
        return QuoteToml(absl::FormatDuration(absl::Nanoseconds(config.*at)));
      });
}

Field Boolean(std::string_view name, std::string_view help, bool Config::*at) {
  return MakeField(
      name, help, "true or false", {TomlType::kBoolean},
      [at](std::string_view text, Config* config) {
        if (text != "true" && text != "false") return false;
        config->*at = text == "true";
        return true;
      },
      [at](const Config& config) { return config.*at ? "true" : "false"; });
}

// A field whose values have names; the names' order is that of the enumeration's codes.
template <typename T>
Field Choice(std::string_view name, std::string_view help, std::vector<std::string_view> names,
             std::function<T*(Config*)> at) {
  std::string expected = "one of ";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&expected, i == 0 ? "" : ", ", View(names[i]));
  }
  return MakeField(
      name, help, std::move(expected), {TomlType::kString},
      [names, at](std::string_view text, Config* config) {
        const auto found = std::find(names.begin(), names.end(), text);
        if (found == names.end()) return false;
        *at(config) = static_cast<T>(found - names.begin());
        return true;
      },
      [names, at](const Config& config) {
        Config copy = config;
        return QuoteToml(names[static_cast<size_t>(*at(&copy))]);
      });
}

template <typename T>
std::vector<std::string_view> Names(int count) {
  std::vector<std::string_view> names;
  for (int code = 0; code < count; ++code) names.push_back(policy::NameOf(static_cast<T>(code)));
  return names;
}

Field Threshold(std::string_view name, std::string_view help,
                policy::Thresholds policy::Settings::*codec, double policy::Thresholds::*at) {
  return MakeField(
      name, help, "a sparsity, a number from 0 to 1, or \"auto\"",
      {TomlType::kFloat, TomlType::kInteger, TomlType::kString},
      [=](std::string_view text, Config* config) {
        return ParseThreshold(text, &(config->settings.*codec.*at));
      },
      [=](const Config& config) { return ShowThreshold(config.settings.*codec.*at); });
}

Field AdminGroup() {
  return MakeField(
      "admin_group",
      "Group whose members may change everything, as root and the daemon's own user may; empty: "
      "nobody else.",
      "a group that exists, by name or number, or an empty string",
      {TomlType::kString, TomlType::kInteger},
      [](std::string_view text, Config* config) {
        const std::string name(text);
        if (!name.empty() && !GroupExists(name)) return false;
        config->admin_group = name;
        return true;
      },
      [](const Config& config) { return QuoteToml(config.admin_group); });
}

Field ByteCount(std::string_view name, std::string_view help, uint64_t Config::*at) {
  return MakeField(
      name, help, "bytes, at least 1, with a unit in quotes if you like: 65536, \"64GiB\", \"1T\"",
      {TomlType::kInteger, TomlType::kString},
      [at](std::string_view text, Config* config) { return ParseBytes(text, 1, &(config->*at)); },
      [at](const Config& config) { return ShowBytes(config.*at); });
}

void AddPeerFields(std::vector<Field>* fields) {
  fields->push_back(MakeField(
      "peers.listen",
      "Where the daemons of other nodes connect; empty: nowhere, and there are no communicators "
      "between nodes; port 0: any; without TLS and MUNGE a loopback address.",
      "HOST:PORT, with an IPv6 address in brackets, or an empty string", {TomlType::kString},
      [](std::string_view text, Config* config) {
        if (!text.empty() && !peers::ParseAddress(text).ok()) return false;
        config->peers_listen = std::string(text);
        return true;
      },
      [](const Config& config) { return QuoteToml(config.peers_listen); }));
  fields->push_back(MakeField(
      "peers.advertise", "What the daemons of other nodes dial; empty: as peers.listen says.",
      "HOST or HOST:PORT, with an IPv6 address in brackets, or an empty string",
      {TomlType::kString},
      [](std::string_view text, Config* config) {
        const bool fine = text.empty() || peers::ParseAddress(text).ok() ||
                          peers::ParseAddress(absl::StrCat(View(text), ":0")).ok();
        if (fine) config->peers_advertise = std::string(text);
        return fine;
      },
      [](const Config& config) { return QuoteToml(config.peers_advertise); }));
  fields->push_back(Path("peers.tls_ca",
                         "Certificate of the authority that signs all nodes' certificates (PEM).",
                         &Config::peers_tls_ca, true));
  fields->push_back(
      Path("peers.tls_cert", "This node's certificate (PEM).", &Config::peers_tls_cert, true));
  fields->push_back(Path("peers.tls_key", "The key of this node's certificate (PEM).",
                         &Config::peers_tls_key, true));
  fields->push_back(Boolean("peers.munge",
                            "Whether peers prove themselves by MUNGE credentials; the same on all "
                            "nodes.",
                            &Config::peers_munge));
  fields->push_back(Duration("peers.heartbeat",
                             "Time between two heartbeats; a peer that is silent for five of them "
                             "is down.",
                             &Config::peers_heartbeat_ns));
}

Field MetricsListen() {
  return MakeField(
      "metrics_listen",
      "Where metrics are served, all jobs' to whoever may connect; unix: metrics.sock in the "
      "runtime "
      "folder; empty: nowhere; port 0: any.",
      "unix, unix:PATH with an absolute path, HOST:PORT with an IP address (IPv6 in brackets) or "
      "localhost, or an empty string",
      {TomlType::kString},
      [](std::string_view text, Config* config) {
        if (!text.empty() && !metrics::ParseListenAddress(text).ok()) return false;
        config->metrics_listen = std::string(text);
        return true;
      },
      [](const Config& config) { return QuoteToml(config.metrics_listen); });
}

void AddPolicyFields(std::vector<Field>* fields) {
  using policy::Settings, policy::Thresholds;
  fields->push_back(Choice<policy::Algorithm>(
      "algorithm", "Algorithm of operations, where no job or communicator says otherwise.",
      Names<policy::Algorithm>(policy::kAlgorithmCount),
      [](Config* config) { return &config->settings.algorithm; }));
  fields->push_back(Choice<policy::Codec>(
      "codec", "Format of sparse sends, where no job or communicator says otherwise.",
      Names<policy::Codec>(policy::kCodecCount),
      [](Config* config) { return &config->settings.codec; }));
  constexpr std::pair<std::string_view, Thresholds Settings::*> kCodecs[] = {
      {"pici", &Settings::pici}, {"coo", &Settings::coo}};
  for (const auto& [codec, at] : kCodecs) {
    const auto add = [&](std::string_view name, std::string_view what, double Thresholds::*field) {
      fields->push_back(
          Threshold(absl::StrCat("thresholds.", View(codec), ".", View(name)),
                    absl::StrCat("Sparsity at or below which ", View(what), " dense and not in ",
                                 View(codec), "; \"auto\": what arrives first."),
                    at, field));
    };
    add("intra", "sends between ranks of one node are", &Thresholds::intra);
    add("inter", "sends between nodes are", &Thresholds::inter);
    add("ag", "the all-gather half of an all-reduce starts", &Thresholds::ag);
  }
}

std::vector<Field> BuildTable() {
  std::vector<Field> fields;
  fields.push_back(Path("runtime_dir", "Folder of the sockets.", &Config::runtime_dir));
  fields.push_back(Path("state_dir", "Folder of what survives a restart.", &Config::state_dir));
  fields.push_back(Choice<LogLevel>("log.level", "Least level of the lines that are logged.",
                                    {"debug", "info", "warning", "error"},
                                    [](Config* config) { return &config->log_level; }));
  fields.push_back(Choice<LogFormat>("log.format", "Form of the lines that are logged.",
                                     {"text", "json"},
                                     [](Config* config) { return &config->log_format; }));
  fields.push_back(Unsigned(
      "channels",
      "Threads that move data; 0: one for each hardware thread that spccld may use, 64 at most.", 0,
      kMaxChannels, &Config::channels));
  fields.push_back(Boolean("pin",
                           "Whether each channel thread keeps to one of the cores that spccld may "
                           "use; where there are more threads than cores, some share one.",
                           &Config::pin));
  fields.push_back(Duration("op_timeout",
                            "Time from the first rank's arrival at an operation to the last's, and "
                            "as much again from there to its end.",
                            &Config::op_timeout_ns));
  fields.push_back(Duration("init_timeout", "Time for all ranks of a communicator to join.",
                            &Config::init_timeout_ns));
  fields.push_back(Duration("stop_timeout",
                            "Time for running operations to end after SIGTERM, before they are "
                            "aborted.",
                            &Config::stop_timeout_ns));
  fields.push_back(Duration("stall_limit",
                            "Time that work that is due may rest before the daemon counts as "
                            "unhealthy.",
                            &Config::stall_limit_ns));
  fields.push_back(
      Unsigned("limits.sessions",
               "Most sessions (client processes) at once; three quarters of them for one "
               "user.",
               1, 1'000'000, &Config::max_sessions));
  fields.push_back(Unsigned("limits.communicators", "Most communicators at once.", 1, 1'000'000,
                            &Config::max_communicators));
  fields.push_back(Unsigned("limits.buffers", "Most registered buffers of one session.", 1,
                            1'000'000, &Config::max_buffers_per_client));
  fields.push_back(ByteCount("limits.buffer_bytes", "Most registered bytes of one session.",
                             &Config::max_buffer_bytes_per_client));
  fields.push_back(Unsigned("flight.operations",
                            "Operations of each communicator that the flight recorder keeps.", 0,
                            4096, &Config::flight_operations));
  fields.push_back(Unsigned("flight.spans",
                            "Spans of each channel's work that the flight recorder keeps.", 0,
                            1'048'576, &Config::flight_spans));
  fields.push_back(Unsigned("flight.files",
                            "Records of failed communicators kept in state_dir/flight.", 0, 10'000,
                            &Config::flight_files));
  fields.push_back(ByteCount("flight.file_bytes", "Most bytes of these records together.",
                             &Config::flight_file_bytes));
  AddJobFields(&fields);
  AddPeerFields(&fields);
  AddGpuFields(&fields);
  fields.push_back(MetricsListen());
  fields.push_back(AdminGroup());
  fields.push_back(Path("tuning.model",
                        "File of spccl-tune that chooses plans between nodes, unless spcclctl has "
                        "loaded another; empty: none.",
                        &Config::tuning_model, true));
  AddPolicyFields(&fields);
  return fields;
}

// Levenshtein's distance, one row at a time.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<Field>& FieldTable() {
  static const std::vector<Field>* const table = new std::vector<Field>(BuildTable());
  return *table;
}

std::optional<Clash> FindClash(const Config& config) {
  const auto clash = [](std::string_view name, std::string_view found, std::string_view expected) {
    return Clash{.field = FindField(name),
                 .message = absl::StrCat(View(name), ": found ", View(found), ", expected ",
                                         View(expected))};
  };
  const std::pair<std::string_view, const std::string&> files[] = {
      {"peers.tls_ca", config.peers_tls_ca},
      {"peers.tls_cert", config.peers_tls_cert},
      {"peers.tls_key", config.peers_tls_key}};
  const std::string *set = nullptr, *missing = nullptr;
  std::string_view set_name, missing_name;
  for (const auto& [name, path] : files) {
    (path.empty() ? missing : set) = &path;
    (path.empty() ? missing_name : set_name) = name;
  }
  if (set != nullptr && missing != nullptr) {
    return clash(set_name, QuoteToml(*set),
                 absl::StrCat(View(missing_name),
                              " as well: TLS needs all of peers.tls_ca, "
                              "peers.tls_cert and peers.tls_key"));
  }
  const absl::StatusOr<peers::Address> listen = peers::ParseAddress(config.peers_listen);
  if (set == nullptr && !config.peers_munge && listen.ok() && !peers::IsLoopback(listen->host)) {
    return clash("peers.listen", QuoteToml(config.peers_listen),
                 "a loopback address: without TLS (peers.tls_cert) or MUNGE (peers.munge) anybody "
                 "could connect");
  }
  return std::nullopt;
}

const Field* FindField(std::string_view name) {
  for (const Field& field : FieldTable()) {
    if (field.info.name == name) return &field;
  }
  return nullptr;
}

bool Accepts(const Field& field, TomlType type) {
  return std::find(field.types.begin(), field.types.end(), type) != field.types.end();
}

std::string Refusal(const Field& field, std::string_view found) {
  return absl::StrCat(field.info.name, ": found ", View(found), ", expected ", field.info.expected);
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string& nearest = *std::min_element(
      candidates.begin(), candidates.end(), [name](const std::string& a, const std::string& b) {
        return Edits(name, a) < Edits(name, b);
      });
  return Edits(name, nearest) <= name.size() / 3 ? nearest : "";
}

}  // namespace spccl::daemon
