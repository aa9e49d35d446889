#include "collective/runtime/cuda/make_gpu_task.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/plan/members.h"
#include "collective/plan/ring.h"
#include "collective/plan/steps.h"
#include "collective/runtime/cuda/gpu_plan.h"
#include "collective/runtime/cuda/gpu_runner.h"
#include "collective/runtime/cuda/multipath_task.h"
#include "collective/runtime/make_task.h"
#include "collective/transport/local/local_transport.h"

namespace spccl::runtime {
namespace {

absl::Status CheckGpuOperation(const OpDesc& op, std::span<const RankBuffers> ranks) {
  if (ranks.empty()) return absl::InvalidArgumentError("an operation over no ranks");
  if (HasRoot(op.kind) && op.root >= ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", op.root, " of ", ranks.size(), " ranks"));
  }
  if (op.count > kMaxElements / ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("count ", op.count, " is too large"));
  }
  return absl::OkStatus();
}

// One participant: all ranks of the node.
plan::Plan LocalPlan(OpKind kind, uint32_t ranks, uint32_t root) {
  const bool whole = kind == OpKind::kAllReduce || kind == OpKind::kBroadcast;
  plan::Members all(1);
  for (uint32_t rank = 0; rank < ranks; ++rank) all[0].push_back(rank);
  plan::Plan plan = plan::EmptyPlan(kind, std::move(all), root, whole ? 1 : ranks);
  plan::CopyAll(&plan);
  return plan;
}

bool IsRing(const policy::Settings& settings, OpKind kind) {
  return Resolve(settings, kind) == policy::Algorithm::kRing;
}

// Over the GPUs' links. `waits_for`: whose streams it is ordered with.
std::unique_ptr<Task> OverLinks(Gpus& gpus, const OpDesc& op, std::span<const RankBuffers> ranks,
                                std::span<const RankBuffers> waits_for,
                                const std::vector<Gpu*>& rails, const policy::Settings& settings,
                                const GpuTaskOptions& options, DoneFn done) {
  const auto count = static_cast<uint32_t>(ranks.size());
  const uint32_t root = HasRoot(op.kind) ? op.root : 0;
  const bool ring = IsRing(settings, op.kind);
  PlanTask::Options plan;
  plan.op = op;
  plan.plan = Prepare(ring ? plan::MakeRing(op.kind, plan::FlatMembers(count), root)
                           : LocalPlan(op.kind, count, root));
  plan.ranks.assign(ranks.begin(), ranks.end());
  plan.settings = settings;
  const bool stages = ring || IntraPolicy(settings, op, rails.size()).may_compress();
  const uint64_t chunk = Layout(op, plan.plan->plan.chunks, 1).largest_chunk();
  plan.slice_bytes = options.slice_bytes != 0 ? options.slice_bytes
                                              : GpuSliceBytes(op, chunk, rails.size(), stages);
  plan.open_lanes =
      options.open_lanes != 0 ? options.open_lanes : GpuOpenLanes(rails.size(), stages);
  plan.transport = std::make_unique<transport::LocalTransport>();
  plan.runner = std::make_shared<GpuRunner>(
      gpus, rails, std::make_shared<RankGate>(gpus, rails, waits_for), op, settings);
  return std::make_unique<PlanTask>(std::move(plan), std::move(done));
}

bool MaySplit(const OpDesc& op, const std::vector<Gpu*>& rails, const policy::Settings& settings,
              const GpuTaskOptions& options) {
  return options.paths != nullptr && op.kind == OpKind::kAllReduce && rails.size() > 1 &&
         !IsRing(settings, op.kind) && options.paths->Covers(op.count * SizeOf(op.dtype));
}

std::unique_ptr<Task> OverBothPaths(Gpus& gpus, const OpDesc& op,
                                    std::span<const RankBuffers> ranks, std::vector<Gpu*> rails,
                                    const policy::Settings& settings, const GpuTaskOptions& options,
                                    DoneFn done) {
  MultipathTask::Options both;
  both.op = op;
  both.ranks.assign(ranks.begin(), ranks.end());
  both.host_slice_bytes = options.host_slice_bytes;
  both.kind = KindOf(options.communicator, op, ranks.size(), rails);
  both.host_bytes = options.paths->HostBytes(
      both.kind, options.host_slice_bytes, !IntraPolicy(settings, op, rails.size()).may_compress());
  both.make_device = [&gpus, op, ranks = both.ranks, rails, settings, options](uint64_t count,
                                                                               DoneFn part_done) {
    OpDesc part = op;
    part.count = count;
    return OverLinks(gpus, part, ranks, /*waits_for=*/{}, rails, settings, options,
                     std::move(part_done));
  };
  both.rails = std::move(rails);
  both.rates = options.paths;
  return std::make_unique<MultipathTask>(gpus, std::move(both), std::move(done));
}

}  // namespace

bool OnGpu(std::span<const RankBuffers> ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankBuffers& rank) {
    return rank.send.on_gpu() || rank.recv.on_gpu();
  });
}

absl::StatusOr<std::unique_ptr<Task>> MakeGpuTask(Gpus& gpus, const OpDesc& op,
                                                  std::span<const RankBuffers> ranks,
                                                  const policy::Settings& settings,
                                                  const GpuTaskOptions& options, DoneFn done) {
  SPCCL_RETURN_IF_ERROR(CheckGpuOperation(op, ranks));
  DeclineRelays(ranks);
  const auto count = static_cast<uint32_t>(ranks.size());
  std::vector<uint32_t> here(count);
  for (uint32_t rank = 0; rank < count; ++rank) here[rank] = rank;
  SPCCL_ASSIGN_OR_RETURN(std::vector<Gpu*> rails, RailsOf(gpus, op, count, here, ranks));
  if (MaySplit(op, rails, settings, options)) {
    return OverBothPaths(gpus, op, ranks, std::move(rails), settings, options, std::move(done));
  }
  return OverLinks(gpus, op, ranks, /*waits_for=*/ranks, rails, settings, options, std::move(done));
}

}  // namespace spccl::runtime
