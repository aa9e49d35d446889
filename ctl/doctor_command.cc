// doctor.
#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "ctl/context.h"
#include "ctl/doctor.h"

namespace spccl::ctl {
namespace {

size_t CountOf(Verdict verdict, const std::vector<Check>& checks) {
  return static_cast<size_t>(
      std::count_if(checks.begin(), checks.end(),
                    [verdict](const Check& check) { return check.verdict == verdict; }));
}

void PrintChecks(const std::vector<Check>& checks, std::ostream* out) {
  for (const Check& check : checks) {
    const std::string verdict = NameOf(check.verdict);
    *out << verdict << std::string(9 - verdict.size(), ' ') << check.name << ": " << check.found
         << "\n";
    if (check.remedy.empty()) continue;
    *out << "         why: " << check.why << "\n         do:  " << check.remedy << "\n";
  }
  std::vector<std::string> counts;
  for (const Verdict verdict :
       {Verdict::kFailed, Verdict::kWarning, Verdict::kOk, Verdict::kSkipped}) {
    const size_t count = CountOf(verdict, checks);
    counts.push_back(verdict == Verdict::kWarning ? Counted(count, NameOf(verdict))
                                                  : absl::StrCat(count, " ", NameOf(verdict)));
  }
  *out << absl::StrJoin(counts, ", ") << "\n";
}

absl::Status RunDoctor(Context& context, const std::string& config_path) {
  const std::vector<Check> checks = RunChecks(context.options(), Machine{}, config_path);
  if (context.json()) {
    context.PrintJson(DoctorJson(checks));
  } else {
    PrintChecks(checks, &context.out());
  }
  const size_t failed = CountOf(Verdict::kFailed, checks);
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(Counted(failed, "check"), " failed"));
}

}  // namespace

nlohmann::ordered_json DoctorJson(const std::vector<Check>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"verdict", NameOf(check.verdict)},
                    {"found", check.found},
                    {"why", check.why},
                    {"remedy", check.remedy}});
  }
  return {{"healthy", CountOf(Verdict::kFailed, checks) == 0}, {"checks", std::move(list)}};
}

void AddDoctorCommand(Tree* tree) {
  const auto config_path = std::make_shared<std::string>();
  CLI::App* doctor = tree->Add(
      &tree->app, "doctor", "Check this machine and its daemon; exit code 3 if a check fails.",
      [config_path](Context& context) { return RunDoctor(context, *config_path); });
  AddConfigOption(doctor, config_path.get());
}

}  // namespace spccl::ctl
