#include "daemon/settings_words.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/parse_number.h"
#include "base/view.h"
#include "collective/policy/plan_table.h"
#include "daemon/config_fields.h"

namespace spccl::daemon {
namespace {

using policy::Overrides;
using Partial = Overrides::Partial;

struct Threshold {
  std::string_view name;
  Partial Overrides::*codec;
  std::optional<double> Partial::*at;
};
constexpr Threshold kThresholds[] = {
    {"thresholds.pici.intra", &Overrides::pici, &Partial::intra},
    {"thresholds.pici.inter", &Overrides::pici, &Partial::inter},
    {"thresholds.pici.ag", &Overrides::pici, &Partial::ag},
    {"thresholds.coo.intra", &Overrides::coo, &Partial::intra},
    {"thresholds.coo.inter", &Overrides::coo, &Partial::inter},
    {"thresholds.coo.ag", &Overrides::coo, &Partial::ag},
};

// 0: the daemon's choice.
bool IsSliceSize(uint64_t bytes) {
  return bytes == 0 || (bytes >= policy::kLeastSliceBytes && bytes <= policy::kMostSliceBytes);
}

template <typename T>
void Merge(const std::optional<T>& from, std::optional<T>* into) {
  if (from.has_value()) *into = from;
}

const JobShareField* FindShareField(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kJobShareFields), std::end(kJobShareFields),
                   [name](const JobShareField& field) { return field.name == name; });
  return found == std::end(kJobShareFields) ? nullptr : found;
}

std::optional<std::string> SetShareOverride(const JobShareField& field, const TomlValue& value,
                                            JobShareOverrides* share) {
  uint64_t parsed = 0;
  if (value.type == TomlType::kInteger &&
      ParseInteger(value.text, field.least, field.most, &parsed)) {
    share->*field.override_ = parsed;
    return std::nullopt;
  }
  return absl::StrCat(View(field.name), ": found ", value.found, ", expected an integer from ",
                      field.least, " to ", field.most);
}

// Sets the override that the value stands for; the message where it is not one.
std::optional<std::string> SetOverride(const std::string& name, const TomlValue& value,
                                       Overrides* overrides) {
  // No field of the configuration: lossy sends are never a default.
  if (name == "lossy") {
    std::string complaint = "expected a string";
    if (value.type == TomlType::kString) {
      overrides->lossy = policy::LossyFromText(value.text, &complaint);
    }
    if (overrides->lossy.has_value()) return std::nullopt;
    return absl::StrCat("lossy: found ", value.found, ": ", complaint);
  }
  if (name == "slice_bytes") {  // nor this
    uint64_t bytes = 0;
    const bool whole = value.type == TomlType::kInteger && absl::SimpleAtoi(value.text, &bytes);
    if (!whole || !IsSliceSize(bytes)) {
      return absl::StrCat("slice_bytes: found ", value.found, ", expected 0, or ",
                          policy::kLeastSliceBytes, " to ", policy::kMostSliceBytes);
    }
    overrides->slice_bytes = bytes;
    return std::nullopt;
  }
  const Field* field = FindField(name);
  const bool known = name == "algorithm" || name == "codec" || name.starts_with("thresholds.");
  if (field == nullptr || !known) return absl::StrCat("unknown setting ", name);
  Config read;  // the configuration's own fields say what a value must be
  if (!Accepts(*field, value.type) || !field->set(value.text, &read)) {
    return Refusal(*field, value.found);
  }
  if (name == "algorithm") overrides->algorithm = read.settings.algorithm;
  if (name == "codec") overrides->codec = read.settings.codec;
  for (const Threshold& threshold : kThresholds) {
    if (name != threshold.name) continue;
    double parsed = 0;
    ParseThreshold(value.text, &parsed);  // cannot fail: the field has accepted it
    overrides->*threshold.codec.*threshold.at = parsed;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckValues(const Overrides& overrides) {
  if (!IsSliceSize(overrides.slice_bytes.value_or(0))) {
    return absl::InvalidArgumentError(absl::StrCat("slice_bytes: found ", *overrides.slice_bytes,
                                                   ", expected 0, or ", policy::kLeastSliceBytes,
                                                   " to ", policy::kMostSliceBytes));
  }
  for (const Threshold& threshold : kThresholds) {
    const std::optional<double>& value = overrides.*threshold.codec.*threshold.at;
    if (value.has_value() && !policy::IsThreshold(*value)) {
      return absl::InvalidArgumentError(absl::StrCat(View(threshold.name), ": found ", *value,
                                                     ", expected a sparsity from 0 to 1, or auto (",
                                                     policy::kAutoThreshold, ")"));
    }
  }
  return absl::OkStatus();
}

Overrides Merged(Overrides base, const Overrides& overrides) {
  Merge(overrides.algorithm, &base.algorithm);
  Merge(overrides.codec, &base.codec);
  Merge(overrides.lossy, &base.lossy);
  Merge(overrides.slice_bytes, &base.slice_bytes);
  for (const Threshold& threshold : kThresholds) {
    Merge(overrides.*threshold.codec.*threshold.at, &(base.*threshold.codec.*threshold.at));
  }
  return base;
}

void AppendOverrides(const Overrides& overrides, std::string* text) {
  if (overrides.algorithm.has_value()) {
    absl::StrAppend(text, "algorithm = ", QuoteToml(policy::NameOf(*overrides.algorithm)), "\n");
  }
  if (overrides.codec.has_value()) {
    absl::StrAppend(text, "codec = ", QuoteToml(policy::NameOf(*overrides.codec)), "\n");
  }
  if (overrides.lossy.has_value()) {
    absl::StrAppend(text, "lossy = ", QuoteToml(policy::TextOf(*overrides.lossy)), "\n");
  }
  if (overrides.slice_bytes.has_value()) {
    absl::StrAppend(text, "slice_bytes = ", *overrides.slice_bytes, "\n");
  }
  for (const Threshold& threshold : kThresholds) {
    const std::optional<double>& value = overrides.*threshold.codec.*threshold.at;
    if (value.has_value()) {
      absl::StrAppend(text, View(threshold.name), " = ", ShowThreshold(*value), "\n");
    }
  }
}

void AppendShare(const JobShareOverrides& share, std::string* text) {
  for (const JobShareField& field : kJobShareFields) {
    const std::optional<uint64_t>& value = share.*field.override_;
    if (value.has_value()) absl::StrAppend(text, View(field.name), " = ", *value, "\n");
  }
}

std::optional<std::string> SetWord(const std::string& name, const TomlValue& value,
                                   Overrides* overrides, JobShareOverrides* share) {
  const JobShareField* const field = share == nullptr ? nullptr : FindShareField(name);
  return field == nullptr ? SetOverride(name, value, overrides)
                          : SetShareOverride(*field, value, share);
}

bool Overlap(const policy::Overrides& a, const policy::Overrides& b) {
  const auto both = [](const auto& one, const auto& other) {
    return one.has_value() && other.has_value();
  };
  const auto thresholds = [&both](const policy::Overrides::Partial& one,
                                  const policy::Overrides::Partial& other) {
    return both(one.intra, other.intra) || both(one.inter, other.inter) || both(one.ag, other.ag);
  };
  return both(a.algorithm, b.algorithm) || both(a.codec, b.codec) || both(a.lossy, b.lossy) ||
         both(a.slice_bytes, b.slice_bytes) || thresholds(a.pici, b.pici) ||
         thresholds(a.coo, b.coo);
}

std::string Describe(const Overrides& overrides) {
  std::vector<std::string> parts;
  if (overrides.algorithm.has_value()) {
    parts.push_back(absl::StrCat("algorithm=", View(policy::NameOf(*overrides.algorithm))));
  }
  if (overrides.codec.has_value()) {
    parts.push_back(absl::StrCat("codec=", View(policy::NameOf(*overrides.codec))));
  }
  if (overrides.lossy.has_value()) {
    parts.push_back(absl::StrCat("lossy=", policy::TextOf(*overrides.lossy)));
  }
  if (overrides.slice_bytes.has_value()) {
    parts.push_back(absl::StrCat("slice_bytes=", *overrides.slice_bytes));
  }
  for (const Threshold& threshold : kThresholds) {
    const std::optional<double>& value = overrides.*threshold.codec.*threshold.at;
    if (value.has_value()) {
      const bool is_auto = *value == policy::kAutoThreshold;
      parts.push_back(
          absl::StrCat(View(threshold.name), "=", is_auto ? "auto" : ShowNumber(*value)));
    }
  }
  return absl::StrJoin(parts, " ");
}

}  // namespace spccl::daemon
