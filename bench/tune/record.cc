#include "bench/tune/record.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::tune {
namespace {

constexpr uint32_t kMostChannels = 64;  // of a daemon

// nlohmann's own conversions take -1 and 3.7 for numbers of channels.
uint32_t ChannelsIn(const nlohmann::json& field) {
  const auto found = field.get<double>();
  const auto channels = static_cast<uint32_t>(std::clamp<double>(found, 0, kMostChannels));
  if (channels == found) return channels;
  throw std::range_error(
      absl::StrCat("found ", field.dump(), " channels, expected 0 to ", kMostChannels));
}

}  // namespace

absl::StatusOr<Record> ReadRecord(const std::string& path) {
  Record record;
  std::ifstream file(path);
  if (!file) return record;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  try {
    const auto fields = nlohmann::json::parse(text).get<nlohmann::json::object_t>();
    if (const auto arguments = fields.find("arguments"); arguments != fields.end()) {
      record.arguments = arguments->second.get<std::vector<std::string>>();
    }
    if (const auto channels = fields.find("channels"); channels != fields.end()) {
      record.channels = ChannelsIn(channels->second.at("chosen"));
      for (const auto& one : channels->second.at("of")) {
        record.channels_of.push_back(ChannelsIn(one));
      }
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", error.what(), "; expected what spccl-tune has written there"));
  }
  return record;
}

absl::Status WriteRecord(const std::string& path, const Record& record) {
  nlohmann::json json = nlohmann::json::object();
  if (record.arguments) json["arguments"] = *record.arguments;
  if (record.channels) {
    json["channels"] = {{"chosen", *record.channels}, {"of", record.channels_of}};
  }
  const std::string made = path + ".new";
  std::ofstream file(made);
  file << json.dump(2) << "\n";
  file.close();
  if (file && std::rename(made.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("write ", path));
}

}  // namespace spccl::tune
