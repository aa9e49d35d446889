#include "ctl/render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace spccl::ctl {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

std::string Format(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, format, value, unit);
  return text;
}

// "CODEC_PICI_COLUMN" of the enumeration Codec: "pici-column"; empty for the unspecified value.
std::string ShortName(const EnumValueDescriptor& value) {
  std::string prefix;  // "SettingsPart" -> "SETTINGS_PART_"
  for (const char c : value.type()->name()) {
    if (!prefix.empty() && absl::ascii_isupper(static_cast<unsigned char>(c))) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  std::string name = value.name().substr(prefix.size() + 1);
  if (name == "UNSPECIFIED") return "";
  absl::AsciiStrToLower(&name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

Json EnumJson(const EnumValueDescriptor* value) {
  const std::string name = ShortName(*value);
  return name.empty() ? Json() : Json(name);
}

Json SingleJson(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  if (field->has_presence() && !reflection.HasField(message, field)) return Json();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumJson(reflection.GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(reflection.GetMessage(message, field));
  }
  return Json();
}

// spccl.v1 repeats messages and uint32; named counts become an object with their names.
Json RepeatedJson(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    Json list = Json::array();
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      list.push_back(reflection.GetRepeatedUInt32(message, field, i));
    }
    return list;
  }
  const bool named = field->message_type() == v1::NamedCount::descriptor();
  Json list = named ? Json::object() : Json::array();
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const Json item = ToJson(reflection.GetRepeatedMessage(message, field, i));
    if (named) {
      list[item["key"].get<std::string>()] = item["value"];
    } else {
      list.push_back(item);
    }
  }
  return list;
}

}  // namespace

Json ToJson(const Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    object[field->name()] =
        field->is_repeated() ? RepeatedJson(message, field) : SingleJson(message, field);
  }
  return object;
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  return Format(unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

std::string HumanBitRate(double bytes_per_second) {
  if (bytes_per_second <= 0) return "-";
  constexpr const char* kUnits[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  double bits = bytes_per_second * 8;
  int unit = 0;
  while (bits >= 1000 && unit < 4) {
    bits /= 1000;
    ++unit;
  }
  return Format(bits >= 100 ? "%.0f %s" : "%.1f %s", bits, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds < 1e-3) return Format("%.0f %s", seconds * 1e6, "us");
  if (seconds < 1) return Format("%.0f %s", seconds * 1e3, "ms");
  if (seconds < 60) return Format("%.1f %s", seconds, "s");
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return absl::StrCat(whole / 60, "m ", whole % 60, "s");
  if (whole < 86400) return absl::StrCat(whole / 3600, "h ", whole % 3600 / 60, "m");
  return absl::StrCat(whole / 86400, "d ", whole % 86400 / 3600, "h");
}

std::string TimeText(int64_t unix_nanos) {
  const time_t seconds = unix_nanos / 1'000'000'000;
  tm utc;
  ::gmtime_r(&seconds, &utc);
  char text[40];
  const size_t used = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + used, sizeof text - used, ".%03dZ",
                static_cast<int>(unix_nanos % 1'000'000'000 / 1'000'000));
  return text;
}

std::string Percent(double part, double whole) {
  return whole == 0 ? "-" : Format("%.1f%s", 100 * part / whole, "%");
}

std::string Sparsity(uint64_t nnz, uint64_t of) {
  if (of == 0) return "-";
  return Format("%.4f%s", 1 - static_cast<double>(nnz) / static_cast<double>(of), "");
}

std::string NameOf(v1::Algorithm algorithm) {
  const EnumValueDescriptor* value = v1::Algorithm_descriptor()->FindValueByNumber(algorithm);
  const std::string name = value == nullptr ? "" : ShortName(*value);
  return name.empty() ? "-" : name;
}

std::string NameOf(v1::Codec codec) {
  const EnumValueDescriptor* value = v1::Codec_descriptor()->FindValueByNumber(codec);
  const std::string name = value == nullptr ? "" : ShortName(*value);
  return name.empty() ? "-" : name;
}

std::string CodecOf(const v1::Settings& settings) {
  const bool exact = settings.lossy().empty() || settings.lossy() == "off";
  return absl::StrCat(NameOf(settings.codec()), exact ? "" : ", lossy ",
                      exact ? "" : settings.lossy());
}

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(heading.starts_with('#'));
    if (right_.back()) heading.erase(0, 1);
  }
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = Printable(cell);
  rows_.push_back(std::move(row));
}

void Table::Print(std::ostream* out) const {
  std::vector<size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(heading.size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      line += (i > 0 ? "  " : "") + (right_[i] ? fill + row[i] : row[i] + fill);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    *out << line << "\n";
  };
  print(headings_);
  for (const auto& row : rows_) print(row);
}

}  // namespace spccl::ctl
