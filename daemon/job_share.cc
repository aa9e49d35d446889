#include "daemon/job_share.h"

#include "absl/strings/str_cat.h"
#include "base/view.h"

namespace spccl::daemon {

std::string Describe(const JobShareOverrides& overrides) {
  std::string text;
  for (const JobShareField& field : kJobShareFields) {
    const std::optional<uint64_t>& value = overrides.*field.override_;
    if (!value.has_value()) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", View(field.name), "=", *value);
  }
  return text;
}

std::string WrongIn(const JobShareOverrides& overrides) {
  for (const JobShareField& field : kJobShareFields) {
    const std::optional<uint64_t>& value = overrides.*field.override_;
    if (!value.has_value() || (*value >= field.least && *value <= field.most)) continue;
    return absl::StrCat(View(field.name), ": found ", *value, ", expected an integer from ",
                        field.least, " to ", field.most);
  }
  return "";
}

}  // namespace spccl::daemon
