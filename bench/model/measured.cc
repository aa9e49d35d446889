#include "bench/model/measured.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace spccl::bench::model {
namespace {

std::optional<Kernel> KernelFrom(const std::string& name) {
  if (name == "encode") return Kernel::kEncode;
  if (name == "decode") return Kernel::kDecode;
  if (name == "reduce-into") return Kernel::kCombine;
  if (name == "fused") return Kernel::kFused;
  return std::nullopt;
}

// "" where it is no text.
std::string Text(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// 0 where it is no number.
double Number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

struct Line {
  std::optional<Kernel> kernel;  // none: not one of ours, or not measured
  Format format = Format::kDense;
  double sparsity = 0, rate = 0;
  double memory_rate = 0;  // 0: not known
};

absl::StatusOr<Line> Read(std::string_view text, DType dtype) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  if (Text(json, "dtype") != NameOf(dtype)) return Line{};
  Line line{.kernel = KernelFrom(Text(json, "operation"))};
  if (!line.kernel) return line;
  const auto rate = json.find("gbps");
  if (rate == json.end() || !rate->is_number() || !(rate->get<double>() >= 0)) {
    return absl::InvalidArgumentError("gbps: expected a number, 0 or more");
  }
  line.rate = rate->get<double>() * 1e9;
  if (line.rate == 0) return Line{};
  const std::optional<Format> format = FormatFromName(Text(json, "format"));
  if (!format || *format == Format::kDense || IsLossy(*format)) {
    return absl::InvalidArgumentError("format: expected pici, pici-column, coo or gap");
  }
  line.format = *format;
  const auto sparsity = json.find("sparsity");
  const bool is_number = sparsity != json.end() && sparsity->is_number();
  if (is_number) line.sparsity = sparsity->get<double>();
  if (!is_number || !(line.sparsity >= 0 && line.sparsity <= 1)) {
    return absl::InvalidArgumentError("sparsity: expected a number from 0 to 1");
  }
  const double bytes = Number(json, "bytes"), copy = Number(json, "copy_seconds");
  if (bytes > 0 && copy > 0) line.memory_rate = 2 * bytes / copy;  // each is read and written
  return line;
}

}  // namespace

absl::StatusOr<int> AddMeasured(std::string_view text, DType dtype, KernelRates* rates) {
  KernelRates result = *rates;
  std::map<std::pair<Kernel, Format>, std::map<double, double>> measured;  // seconds by density
  int taken = 0, number = 0;
  for (const auto& part : std::vector<std::string>(
           absl::StrSplit(absl::string_view(text.data(), text.size()), '\n'))) {
    ++number;
    if (part.find_first_not_of(" \t\r") == std::string::npos) continue;
    const absl::StatusOr<Line> line = Read(part, dtype);
    if (!line.ok()) return Annotate(line.status(), absl::StrCat("line ", number));
    if (!line->kernel) continue;
    ++taken;
    if (line->memory_rate > 0) result.memory_rate = line->memory_rate;
    measured[{*line->kernel, line->format}][1 - line->sparsity] = 1 / line->rate;
  }
  for (const auto& [key, seconds] : measured) {
    std::vector<KernelRates::Point>& points = result.measured[key];
    points.clear();
    for (const auto& [density, time] : seconds) points.push_back({density, time});
  }
  *rates = std::move(result);
  return taken;
}

}  // namespace spccl::bench::model
