#include "collective/runtime/make_task.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/plan/ring.h"
#include "collective/runtime/host/local_task.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/runtime/host/relay_task.h"
#include "collective/transport/frame_pool.h"
#include "collective/transport/local/local_transport.h"

namespace spccl::runtime {
namespace {

absl::Status Check(const OpDesc& op, std::span<const RankBuffers> ranks,
                   const TaskOptions& options) {
  if (ranks.empty() || ranks.size() > kMaxLocalRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("operation over ", ranks.size(), " ranks; 1 to ", kMaxLocalRanks, " can be"));
  }
  if (HasRoot(op.kind) && op.root >= ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", op.root, " of ", ranks.size(), " ranks"));
  }
  if (op.count > kMaxElements / ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("count ", op.count, " is too large"));
  }
  if (!options.node_of_rank.empty() && options.node_of_rank.size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("nodes of ", options.node_of_rank.size(),
                                                   " ranks for ", ranks.size(), " ranks"));
  }
  return absl::OkStatus();
}

bool CanRelay(const OpDesc& op, std::span<const RankBuffers> ranks,
              const policy::Settings& settings) {
  return op.kind == OpKind::kAllReduce && Resolve(settings, op.kind) == policy::Algorithm::kLocal &&
         std::all_of(ranks.begin(), ranks.end(),
                     [](const RankBuffers& rank) { return rank.relay != nullptr; });
}

}  // namespace

policy::Algorithm Resolve(const policy::Settings& settings, OpKind op) {
  // The algorithms between nodes have nothing to do between: what is left of them is local.
  const bool ring =
      settings.algorithm == policy::Algorithm::kRing && HasPlan(settings.algorithm, op);
  return ring ? policy::Algorithm::kRing : policy::Algorithm::kLocal;
}

absl::StatusOr<std::unique_ptr<Task>> MakeTask(const OpDesc& op, std::span<const RankBuffers> ranks,
                                               const policy::Settings& settings,
                                               const TaskOptions& options, DoneFn done) {
  SPCCL_RETURN_IF_ERROR(Check(op, ranks, options));
  std::vector<RankBuffers> buffers(ranks.begin(), ranks.end());
  if (CanRelay(op, ranks, settings)) {
    std::vector<std::shared_ptr<RankRelay>> relays;
    for (const RankBuffers& rank : ranks) relays.push_back(rank.relay);
    return std::make_unique<RelayTask>(std::move(relays), std::move(done));
  }
  DeclineRelays(ranks);
  if (Resolve(settings, op.kind) == policy::Algorithm::kLocal) {
    return std::make_unique<LocalTask>(op, std::move(buffers), options.slice_bytes,
                                       std::move(done));
  }
  const uint32_t root = op.kind == OpKind::kBroadcast ? op.root : 0;
  const auto nodes = options.node_of_rank;
  PlanTask::Options plan_options;
  plan_options.op = op;
  plan_options.plan = Prepare(
      plan::MakeRing(op.kind, plan::FlatMembers(static_cast<uint32_t>(ranks.size())), root));
  plan_options.ranks = std::move(buffers);
  plan_options.node_of_rank.assign(nodes.begin(), nodes.end());
  plan_options.settings = settings;
  plan_options.slice_bytes = options.slice_bytes;
  plan_options.transport = std::make_unique<transport::LocalTransport>();
  plan_options.pool = &transport::FramePool::Shared();
  return std::make_unique<PlanTask>(std::move(plan_options), std::move(done));
}

}  // namespace spccl::runtime
