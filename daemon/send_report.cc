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

bool Alike(const SendStepStats& a, const SendStepStats& b) {
  return a.phase == b.phase && a.link == b.link && MainReason(a) == MainReason(b) && Sent(b);
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
      if (numbers && step.sparsity_count != 0) {
        absl::StrAppendFormat(&part, ", sparsity %.4g",
                              step.sparsity_sum / static_cast<double>(step.sparsity_count));
      }
      if (numbers && step.threshold != 0) {
        absl::StrAppendFormat(&part, ", threshold %.4g", step.threshold);
      }
      parts.push_back(std::move(part));
    }
    first = end;
  }
  return absl::StrCat(sends.operation, " by ", sends.algorithm, ": ", absl::StrJoin(parts, "; "));
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
