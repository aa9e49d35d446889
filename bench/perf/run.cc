#include "bench/perf/run.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/perf/report.h"
#include "bench/support/output.h"

namespace spccl::bench {
namespace {

absl::Status Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return FlushOutput();
}

// "# on NVIDIA H200 and 7 more"; nothing of the host.
std::string DevicesText(const Backend& backend, int ranks) {
  const std::string name = backend.device_name();
  if (name.empty()) return "";
  const int others = std::min(backend.device_choices(), ranks) - 1;
  return absl::StrCat("# on ", name, others > 0 ? absl::StrCat(" and ", others, " more") : "",
                      "\n");
}

}  // namespace

absl::StatusOr<bool> RunProblems(std::string_view tool, Team& team, Backend& backend,
                                 const Options& options) {
  const bool prints = team.rank() == 0;
  if (prints && !options.json) {
    SPCCL_RETURN_IF_ERROR(Print(DevicesText(backend, team.ranks()) + TableHead(tool, options)));
  }
  bool right = true;
  std::string memory;  // as it was last told
  for (const Problem& problem : options.problems) {
    SPCCL_ASSIGN_OR_RETURN(const std::vector<Measurement> all,
                           Measure(team, backend, problem, options));
    if (prints && !options.json && all.front().memory.text != memory) {
      memory = all.front().memory.text;
      SPCCL_RETURN_IF_ERROR(Print("# memory: " + memory + "\n"));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      right = right && all[i].wrong == 0;
      if (!prints) continue;
      const Setting* const setting = options.settings.empty() ? nullptr : &options.settings[i];
      SPCCL_RETURN_IF_ERROR(Print(options.json ? JsonLine(tool, problem, options, setting, all[i])
                                               : TableRow(problem, options, setting, all[i])));
    }
  }
  SPCCL_RETURN_IF_ERROR(team.Barrier());  // before anyone leaves
  return right;
}

int RunTool(const Tool& tool, int argc, const char* const* argv, int (*run)(const Options&)) {
  const ParsedOptions parsed = ParseOptions(tool, argc, argv);
  if (parsed.go_on) return run(parsed.options);
  std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
  return EndOutput(tool.name, parsed.exit_code);
}

}  // namespace spccl::bench
