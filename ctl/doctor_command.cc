// doctor.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ctl/context.h"
#include "ctl/doctor.h"

namespace spccl::ctl {
namespace {

absl::Status RunDoctor(Context& context) {
  const std::vector<Check> checks = RunChecks(context.options(), Machine{});
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"verdict", NameOf(check.verdict)},
                    {"found", check.found},
                    {"why", check.why},
                    {"remedy", check.remedy}});
    if (context.json()) continue;
    const std::string verdict = NameOf(check.verdict);
    context.out() << verdict << std::string(9 - verdict.size(), ' ') << check.name << ": "
                  << check.found << "\n";
    if (check.verdict == Verdict::kOk) continue;
    context.out() << "         why: " << check.why << "\n         do:  " << check.remedy << "\n";
  }
  const auto failed = std::count_if(checks.begin(), checks.end(), [](const Check& check) {
    return check.verdict == Verdict::kFailed;
  });
  if (context.json()) context.PrintJson({{"healthy", failed == 0}, {"checks", std::move(list)}});
  if (failed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(failed, " checks failed"));
}

}  // namespace

void AddDoctorCommand(Tree* tree) {
  tree->Add(&tree->app, "doctor",
            "Check this machine and its daemon; exit code 3 if a check fails.", RunDoctor);
}

}  // namespace spccl::ctl
