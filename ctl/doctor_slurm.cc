// Checks of Slurm's prolog, epilog and TaskProlog, where there is a Slurm.
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ctl/doctor.h"

namespace spccl::ctl {
namespace {

constexpr size_t kMostConfBytes = size_t{4} << 20, kMostScriptBytes = size_t{64} << 10;

// Where slurmd may have it: given to it, packaged, or fetched from the controller.
std::string SlurmConf(const Machine& machine) {
  for (const std::string& path :
       {machine.etc + "/slurm/slurm.conf", machine.run + "/slurm/conf/slurm.conf",
        machine.etc + "/slurm-llnl/slurm.conf"}) {
    if (FactsOf(path).error == 0) return path;
  }
  return "";
}

// All values of a key, which Slurm reads in whatever case.
std::vector<std::string> ValuesOf(const std::string& conf, const std::string& key) {
  std::vector<std::string> values;
  for (absl::string_view line : absl::StrSplit(conf, '\n')) {
    line = line.substr(0, line.find('#'));
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) continue;
    if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(line.substr(0, equals)), key)) continue;
    for (absl::string_view value : absl::StrSplit(line.substr(equals + 1), ',')) {
      values.emplace_back(absl::StripAsciiWhitespace(value));
    }
  }
  return values;
}

std::vector<std::string> FilesOf(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return files;
}

// Ours, or one that calls ours.
bool IsOurs(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostScriptBytes);
  return text.ok() && absl::StrContains(*text, "spccl");
}

Check CheckHook(const std::string& conf, const std::string& key, const std::string& name,
                const std::string& script) {
  Check check{.name = name,
              .verdict = Verdict::kFailed,
              .found = "",
              .why =
                  "the prolog has the daemon run and know the job, the epilog ends the job there, "
                  "the TaskProlog tells tasks where the daemon is",
              .remedy = absl::StrCat(key, "=/usr/libexec/spccl/slurm/", script,
                                     " in slurm.conf, then scontrol reconfigure")};
  std::vector<std::string> ours, broken;
  const std::vector<std::string> patterns = ValuesOf(conf, key);
  for (const std::string& pattern : patterns) {
    for (const std::string& path : FilesOf(pattern)) {
      if (!IsOurs(path)) continue;
      (::access(path.c_str(), X_OK) == 0 ? ours : broken).push_back(path);
    }
  }
  if (!broken.empty()) {
    check.found = absl::StrCat(absl::StrJoin(broken, ", "), " may not be executed");
    check.remedy = absl::StrCat("chmod 0755 ", absl::StrJoin(broken, " "));
  } else if (!ours.empty()) {
    check.verdict = Verdict::kOk;
    check.found = absl::StrJoin(ours, ", ");
    check.remedy.clear();
  } else {
    check.verdict = Verdict::kWarning;
    check.found = patterns.empty()
                      ? absl::StrCat(key, " is not set")
                      : absl::StrCat(key, "=", absl::StrJoin(patterns, ","), " runs none of ours");
  }
  return check;
}

Check CheckPrologFlags(const std::string& conf) {
  const std::string flags = absl::StrJoin(ValuesOf(conf, "PrologFlags"), ",");
  const std::string low = absl::AsciiStrToLower(flags);
  // Contain implies Alloc.
  const bool alloc = absl::StrContains(low, "alloc") || absl::StrContains(low, "contain");
  return {
      .name = "Slurm PrologFlags",
      .verdict = alloc ? Verdict::kOk : Verdict::kWarning,
      .found = flags.empty() ? "not set" : flags,
      .why = "without Alloc a node's prolog runs when its first task comes, and others wait for it",
      .remedy = alloc ? "" : "PrologFlags=Alloc in slurm.conf, then scontrol reconfigure"};
}

}  // namespace

std::vector<Check> CheckSlurm(const Machine& machine) {
  Check check{.name = "Slurm",
              .verdict = Verdict::kSkipped,
              .found = "no slurm.conf is here",
              .why = "its prolog and epilog start the daemon and tell it of jobs",
              .remedy = ""};
  const std::string path = SlurmConf(machine);
  if (path.empty()) return {check};
  const absl::StatusOr<std::string> conf = ReadFile(path, kMostConfBytes);
  if (!conf.ok()) {
    check.found = std::string(conf.status().message());
    return {check};
  }
  return {CheckHook(*conf, "Prolog", "Slurm prolog", "prolog.d/*"),
          CheckHook(*conf, "Epilog", "Slurm epilog", "epilog.d/*"),
          CheckHook(*conf, "TaskProlog", "Slurm TaskProlog", "taskprolog.d/50-spccl"),
          CheckPrologFlags(*conf)};
}

}  // namespace spccl::ctl
