#include "daemon/node_costs.h"

#include <algorithm>
#include <cmath>

namespace spccl::daemon {

absl::Status CheckLink(double alpha, double link_rate) {
  if (std::isfinite(alpha) && std::isfinite(link_rate) && alpha >= 0 && link_rate >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a link of impossible speed");
}

policy::Costs CommonCosts(std::span<const NodeCosts> nodes, const policy::Costs& defaults) {
  policy::Costs common = nodes.front().costs;
  double alpha = 0, link_rate = 0;
  for (const NodeCosts& node : nodes) {
    policy::Costs costs = node.costs;
    if (node.machine != 0) {
      const auto sharing = static_cast<double>(
          std::count_if(nodes.begin(), nodes.end(),
                        [&](const NodeCosts& other) { return other.machine == node.machine; }));
      costs.cores /= sharing;
      costs.stream_rate /= sharing;
    }
    common = policy::SlowerOf(common, costs);
    alpha = std::max(alpha, node.alpha);
    if (node.link_rate > 0) {
      link_rate = link_rate == 0 ? node.link_rate : std::min(link_rate, node.link_rate);
    }
  }
  common.alpha = alpha > 0 ? alpha : defaults.alpha;
  common.link_rate = link_rate > 0 ? link_rate : defaults.link_rate;
  return common;
}

}  // namespace spccl::daemon
