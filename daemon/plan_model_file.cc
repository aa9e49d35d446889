// Reads the file of a plan model.
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/toml.h"
#include "base/view.h"
#include "daemon/plan_models.h"

namespace spccl::daemon {
namespace {

using policy::Pick;
using policy::PlanGrid;
using policy::PlanModel;

constexpr uint32_t kMostRanks = 1024, kMostChannels = 64;

std::optional<uint64_t> WholeNumber(std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= least && value <= most ? std::optional(value) : std::nullopt;
}

// "nodes-4" with the prefix "nodes-".
std::optional<uint32_t> Numbered(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  const auto number = WholeNumber(text.substr(prefix.size()), 1, kMostRanks);
  return number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
}

std::optional<OpKind> KindFromName(std::string_view name) {
  for (int code = 0; code < kOpKindCount; ++code) {
    if (NameOf(static_cast<OpKind>(code)) == name) return static_cast<OpKind>(code);
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  absl::StatusOr<PlanModel> Read() {
    SPCCL_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ReadToml(text_, name_));
    // What the plans' letters stand for may come after them.
    for (const TomlValue& value : values) {
      if (value.path[0] == "picks") SPCCL_RETURN_IF_ERROR(TakePick(value));
    }
    for (const TomlValue& value : values) SPCCL_RETURN_IF_ERROR(Take(value));
    if (!format_) return TomlError(name_, {1, 1}, "no format: expected format = 1");
    if (model_.tables.empty()) return TomlError(name_, {1, 1}, "no plans: expected [plans. ...]");
    return std::move(model_);
  }

 private:
  absl::Status Refuse(const TomlValue& value, std::string_view expected) const {
    return TomlError(name_, value.value,
                     absl::StrCat(DottedName(value.path), ": found ", value.found, ", expected ",
                                  View(expected)));
  }

  absl::Status TakePick(const TomlValue& value) {
    const bool letter = value.path.size() == 2 && value.path[1].size() == 1 &&
                        value.path[1][0] >= 'a' && value.path[1][0] <= 'z';
    if (!letter) return TomlError(name_, value.key, "a pick's name is one letter from a to z");
    const auto pick = policy::PickFromName(value.text);
    if (value.type != TomlType::kString || !pick) {
      return Refuse(value,
                    "an algorithm between nodes, with a slice size from 4096 to 1073741824 behind "
                    "a slash if it has one: \"split/262144\"");
    }
    picks_[value.path[1][0] - 'a'] = *pick;
    return absl::OkStatus();
  }

  absl::Status Take(const TomlValue& value) {
    const std::string& first = value.path[0];
    if (first == "picks") return absl::OkStatus();
    if (first == "plans") return TakeRow(value);
    if (first == "quality") {
      const bool number = value.type == TomlType::kInteger || value.type == TomlType::kFloat;
      return number ? absl::OkStatus() : Refuse(value, "a number");
    }
    if (first == "format" && value.path.size() == 1) {
      format_ = value.type == TomlType::kInteger && value.text == "1";
      return format_ ? absl::OkStatus() : Refuse(value, "1");
    }
    if (first == "made" && value.path.size() == 1) {
      return value.type == TomlType::kString ? absl::OkStatus() : Refuse(value, "a string");
    }
    if (first == "channels" && value.path.size() == 1) {
      const auto channels = WholeNumber(value.text, 0, kMostChannels);
      if (value.type != TomlType::kInteger || !channels) {
        return Refuse(value, "an integer from 0 to 64");
      }
      model_.channels = static_cast<uint32_t>(*channels);
      return absl::OkStatus();
    }
    return TomlError(name_, value.key,
                     absl::StrCat("unknown name ", DottedName(value.path),
                                  ", expected format, made, channels, picks, quality or plans"));
  }

  // plans.OPERATION.nodes-N.ranks-R.BYTES = "a letter for each density"
  absl::Status TakeRow(const TomlValue& value) {
    const auto kind = value.path.size() == 5 ? KindFromName(value.path[1]) : std::nullopt;
    const auto nodes = kind ? Numbered(value.path[2], "nodes-") : std::nullopt;
    const auto ranks = kind ? Numbered(value.path[3], "ranks-") : std::nullopt;
    const auto bytes = kind ? WholeNumber(value.path[4], 1, uint64_t{1} << 60) : std::nullopt;
    if (!kind || !nodes || *nodes < 2 || !ranks || !bytes) {
      return TomlError(name_, value.key,
                       absl::StrCat("found plans of ", DottedName(value.path),
                                    ", expected plans.OPERATION.nodes-N.ranks-R.BYTES, with 2 to ",
                                    kMostRanks, " nodes"));
    }
    PlanGrid& grid =
        model_.tables[{.nodes = *nodes, .most_ranks = *ranks}].grids[static_cast<size_t>(*kind)];
    const bool is_first = grid.picks.empty();
    if (is_first) {
      grid.first_size = policy::SizeClass(*bytes);
      grid.densities = static_cast<uint32_t>(value.text.size());
    }
    const bool fits = value.type == TomlType::kString && grid.densities > 0 &&
                      grid.densities <= policy::kDensityClasses &&
                      value.text.size() == grid.densities;
    if (!fits) {
      return Refuse(
          value, is_first ? absl::StrCat("a string of 1 to ", policy::kDensityClasses, " letters")
                          : absl::StrCat("a string of ", grid.densities,
                                         " letters, as in the row before"));
    }
    const size_t next = grid.first_size + grid.picks.size() / grid.densities;
    if (policy::SizeClass(*bytes) != next) {
      return TomlError(name_, value.key,
                       absl::StrCat("found a row for ", *bytes, " bytes, expected the next half ",
                                    "octave: about ", policy::BytesOfSizeClass(next)));
    }
    return TakeCells(value, *kind, &grid);
  }

  absl::Status TakeCells(const TomlValue& value, OpKind kind, PlanGrid* grid) {
    for (const char letter : value.text) {
      const bool known = letter == '.' || (letter >= 'a' && letter <= 'z' &&
                                           policy::HasPlan(picks_[letter - 'a'].algorithm, kind));
      if (!known) {
        return Refuse(value, absl::StrCat("letters of [picks] with plans for ", View(NameOf(kind)),
                                          ", or a dot for the cost model's choice"));
      }
      grid->picks.push_back(letter == '.' ? Pick{} : picks_[letter - 'a']);
    }
    return absl::OkStatus();
  }

  const std::string_view text_, name_;
  bool format_ = false;
  Pick picks_[26];
  PlanModel model_;
};

}  // namespace

absl::StatusOr<PlanModel> ParsePlanModel(std::string_view text, std::string_view name) {
  return Reader(text, name).Read();
}

}  // namespace spccl::daemon
