#include "daemon/send_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace spccl::daemon {
namespace {

using runtime::SendStepStats;

bool Sent(const SendStepStats& step) {
  return std::any_of(step.decisions.begin(), step.decisions.end(),
                     [](uint64_t count) { return count != 0; });
}

// "gap", or "coo or gap": most sends first; what less than a tenth of them were is left out. Or the
// first only.
std::string Formats(const SendStepStats& step, bool all_formats) {
  std::vector<std::pair<uint64_t, int>> counts;
  uint64_t all = 0;
  for (int code = 0; code < kFormatCount; ++code) {
    counts.emplace_back(step.formats[code], code);
    all += step.formats[code];
  }
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (const auto& [count, code] : counts) {
    if (count != 0 && count * 10 >= all) names.emplace_back(NameOf(static_cast<Format>(code)));
  }
  if (!all_formats && names.size() > 1) names.resize(1);
  return absl::StrJoin(names, " or ");
}

bool Alike(const SendStepStats& a, const SendStepStats& b) {
  return a.phase == b.phase && a.link == b.link && MainReason(a) == MainReason(b) &&
         Formats(a, false) == Formats(b, false) && Sent(b);
}

std::string Tell(const SendsInfo& sends, bool numbers) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < sends.steps.size();) {
    const SendStepStats& step = sends.steps[first];
    size_t end = first + 1;
    if (Sent(step)) {
      while (end < sends.steps.size() && Alike(step, sends.steps[end])) ++end;
      std::string part = end == first + 1 ? absl::StrCat("send ", first)
                                          : absl::StrCat("sends ", first, "-", end - 1);
      absl::StrAppend(&part, " (", std::string(NameOf(step.phase)), ", ",
                      std::string(policy::NameOf(step.link)), ") ",
                      std::string(policy::NameOf(MainReason(step))));
      if (const std::string formats = Formats(step, numbers); !formats.empty()) {
        absl::StrAppend(&part, " as ", formats);
      }
      if (numbers && step.sparsity_count != 0) {
        absl::StrAppendFormat(&part, ", sparsity %.4g",
                              step.sparsity_sum / static_cast<double>(step.sparsity_count));
      }
      if (numbers && step.threshold != 0) {
        absl::StrAppendFormat(&part, ", threshold %.4g", step.threshold);
      }
      if (numbers && step.forecasts != 0) {
        absl::StrAppendFormat(&part, ", wire %.4f ms of %.4f ms forecast",
                              static_cast<double>(step.wire_ns) / 1e6,
                              step.predicted_wire_ns / 1e6);
      }
      parts.push_back(std::move(part));
    }
    first = end;
  }
  if (parts.empty()) return "";
  const std::string way =
      sends.way.empty() || !numbers ? "" : absl::StrCat(", sending by trial: ", sends.way);
  return absl::StrCat(sends.operation, " by ", sends.algorithm, way, ": ",
                      absl::StrJoin(parts, "; "));
}

}  // namespace

policy::Reason MainReason(const SendStepStats& step) {
  const auto most = std::max_element(step.decisions.begin(), step.decisions.end());
  return static_cast<policy::Reason>(most - step.decisions.begin());
}

std::string Describe(const SendsInfo& sends) {
  return Tell(sends, true);
}

std::string Outline(const SendsInfo& sends) {
  return Tell(sends, false);
}

}  // namespace spccl::daemon
