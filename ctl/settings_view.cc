#include "ctl/settings_view.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ctl/render.h"

namespace spccl::ctl {
namespace {

constexpr char kLegend[] = "(* set for this scope itself; in brackets: by what is around it)\n";

// A value, and who says it: " *" the scope itself, else the narrowest around it for which
// `says` holds; nothing: the configuration.
template <typename Says>
std::string Cell(const v1::GetSettingsResponse& response, const std::string& value,
                 const Says& says) {
  if (says(response.overrides())) return value + " *";
  for (const v1::Saying& saying : response.around()) {
    if (says(saying.settings())) return absl::StrCat(value, " (", Printable(saying.by()), ")");
  }
  return value;
}

void AddThresholdRow(const v1::GetSettingsResponse& response, const std::string& codec,
                     const v1::Thresholds& (v1::Settings::*of)() const, Table* table) {
  const auto cell = [&](bool (v1::Thresholds::*has)() const,
                        double (v1::Thresholds::*get)() const) {
    const double value = ((response.resolved().*of)().*get)();
    return Cell(response, value < 0 ? "auto" : absl::StrCat(value),
                [&](const v1::Settings& said) { return ((said.*of)().*has)(); });
  };
  using T = v1::Thresholds;
  table->Add({codec, cell(&T::has_intra, &T::intra), cell(&T::has_inter, &T::inter),
              cell(&T::has_ag, &T::ag)});
}

// What an operation runs with: of the codec, what it is lossy by comes before the exact format.
void AddAlgorithmRow(const v1::GetSettingsResponse& response, Table* table) {
  const v1::Settings& resolved = response.resolved();
  const bool lossy = resolved.lossy() != "off";
  table->Add(
      {Cell(response, NameOf(resolved.algorithm()),
            [](const v1::Settings& said) { return said.algorithm() != v1::ALGORITHM_UNSPECIFIED; }),
       Cell(response, resolved.slice_bytes() == 0 ? "auto" : absl::StrCat(resolved.slice_bytes()),
            [](const v1::Settings& said) { return said.has_slice_bytes(); }),
       Cell(response, CodecOf(resolved), [lossy](const v1::Settings& said) {
         return !said.lossy().empty() || (!lossy && said.codec() != v1::CODEC_UNSPECIFIED);
       })});
}

}  // namespace

void PrintThresholds(const v1::GetSettingsResponse& response, std::ostream* out) {
  Table table({"CODEC", "#INTRA", "#INTER", "#AG"});
  AddThresholdRow(response, "pici", &v1::Settings::pici, &table);
  AddThresholdRow(response, "coo", &v1::Settings::coo, &table);
  table.Print(out);
  *out << kLegend;
}

void PrintAlgorithm(const v1::GetSettingsResponse& response, std::ostream* out) {
  Table table({"ALGO", "#SLICE", "CODEC"});
  AddAlgorithmRow(response, &table);
  table.Print(out);
  *out << kLegend;
}

}  // namespace spccl::ctl
