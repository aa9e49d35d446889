// The fields of [jobs]: what holds for a job of which nothing else is said.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/parse_number.h"
#include "base/view.h"
#include "daemon/config_fields.h"
#include "daemon/job_share.h"

namespace spccl::daemon {
namespace {

Field JobField(const JobShareField& field) {
  const auto help = [&](std::string_view text) {
    return absl::StrCat(View(text), ", where nothing else is set for the job.");
  };
  const auto show = [at = field.value](const Config& config) { return config.job_share.*at; };
  const std::string name = absl::StrCat("jobs.", View(field.name));
  if (field.value == &JobShare::max_buffer_bytes) {
    return MakeField(
        name, help(field.help),
        "bytes, with a unit in quotes if you like: 65536, \"64GiB\", \"1T\"",
        {TomlType::kInteger, TomlType::kString},
        [at = field.value](std::string_view text, Config* config) {
          return ParseBytes(text, 0, &(config->job_share.*at));
        },
        [show](const Config& config) { return ShowBytes(show(config)); });
  }
  return MakeField(
      name, help(field.help), absl::StrCat("an integer from ", field.least, " to ", field.most),
      {TomlType::kInteger},
      [field](std::string_view text, Config* config) {
        return ParseInteger(text, field.least, field.most, &(config->job_share.*field.value));
      },
      [show](const Config& config) { return absl::StrCat(show(config)); });
}

}  // namespace

void AddJobFields(std::vector<Field>* fields) {
  for (const JobShareField& field : kJobShareFields) fields->push_back(JobField(field));
}

}  // namespace spccl::daemon
