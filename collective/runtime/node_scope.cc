#include "collective/runtime/node_scope.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mix.h"
#include "base/status.h"
#include "collective/plan/check.h"
#include "collective/plan/make_plan.h"
#include "collective/policy/plan_table.h"
#include "collective/policy/slice.h"
#include "collective/runtime/cuda/gpu_plan.h"
#include "collective/runtime/cuda/make_gpu_task.h"
#include "collective/runtime/host/plan_task.h"
#include "collective/transport/mesh/mesh_transport.h"
#include "kernels/host/codec.h"

namespace spccl::runtime {
namespace {

constexpr size_t kMaxRanks = 1024;
// Plans that are kept: those of all operations and algorithms, and of some roots.
constexpr size_t kMaxPlans = 64;
// Trials that are kept: a program has few kinds of operations that differ so much.
constexpr size_t kMaxTrials = 256;

// Operations that go the same way: of one kind, element type and plan, about as large and as dense,
// on the same memory, and alike in whether sparse frames can pay at all. The same on all nodes.
uint64_t DigestOf(const OpDesc& op, const policy::Choice& choice, const policy::Tuning& tuning,
                  bool on_gpu) {
  const bool stays_dense = policy::CodecFor(tuning, op) == policy::Codec::kDense;
  uint64_t digest = Mix(0, static_cast<uint64_t>(op.kind));
  digest = Mix(digest, static_cast<uint64_t>(op.dtype));
  digest = Mix(digest, static_cast<uint64_t>(choice.algorithm));
  digest = Mix(digest, choice.slice_bytes);
  digest = Mix(digest, static_cast<uint64_t>(std::bit_width(op.count)));
  digest = Mix(digest, policy::DensityClass(tuning.densities[static_cast<size_t>(op.kind)]));
  return Mix(digest, (on_gpu ? 2 : 0) + (stays_dense ? 1 : 0));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeScope>> NodeScope::Create(std::vector<uint32_t> node_of_rank,
                                                             uint32_t here) {
  if (node_of_rank.size() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat("a communicator of ", node_of_rank.size(),
                                                   " ranks; ", kMaxRanks, " are the most"));
  }
  std::unique_ptr<NodeScope> scope(new NodeScope(std::move(node_of_rank), here));
  if (scope->local_ranks_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no rank is on node ", here));
  }
  return scope;
}

NodeScope::NodeScope(std::vector<uint32_t> node_of_rank, uint32_t here)
    : node_of_rank_(std::move(node_of_rank)),
      topology_(policy::Topology::Of(node_of_rank_)),
      is_local_(node_of_rank_.size()) {
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    if (node_of_rank_[rank] != here) continue;
    local_ranks_.push_back(rank);
    is_local_[rank] = true;
  }
}

NodeScope::~NodeScope() = default;

absl::Status NodeScope::CheckOperation(const OpDesc& op, size_t buffers) const {
  SPCCL_CHECK(buffers == local_ranks_.size());
  if (HasRoot(op.kind) && op.root >= ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("root ", op.root, " of ", ranks(), " ranks"));
  }
  if (op.count > kMaxElements / ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("count ", op.count, " is too large"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const NodeScope::Planned*> NodeScope::PlanFor(const OpDesc& op,
                                                             policy::Algorithm algorithm) {
  const uint32_t root = HasRoot(op.kind) ? op.root : 0;
  const PlanKey key(op.kind, root, algorithm);
  if (const auto found = plans_.find(key); found != plans_.end()) return &found->second;
  plan::Plan plan = plan::MakePlan(algorithm, op.kind, node_of_rank_, root);
  SPCCL_RETURN_IF_ERROR(plan::Check(plan));
  if (plans_.size() >= kMaxPlans) plans_.clear();
  const uint64_t digest = plan::Digest(plan);
  Planned& planned = plans_[key];
  planned = {.plan = Prepare(std::move(plan)), .mine = {}, .digest = digest};
  for (const uint32_t rank : local_ranks_) {
    const uint32_t participant = planned.plan->participant_of_rank[rank];
    if (planned.plan->first_rank[participant] == rank) planned.mine.push_back(participant);
  }
  return &planned;
}

NodeScope::OnTrial NodeScope::TryNext(const OpDesc& op, const policy::Choice& choice,
                                      const policy::Tuning& tuning, bool on_gpu) {
  const uint64_t key = DigestOf(op, choice, tuning, on_gpu);
  auto found = trials_.find(key);
  if (found == trials_.end()) {
    if (trials_.size() >= kMaxTrials) trials_.erase(LeastRecent());
    std::vector<policy::Way> ways = policy::WaysToTry(choice.algorithm, tuning, op, topology_);
    const policy::Trials trials(ways.size());
    found = trials_.try_emplace(key, Trial{op.kind, std::move(ways), trials}).first;
  }
  found->second.used = ++trials_used_;
  return {.operations = key, .trial = &found->second, .way = found->second.trials.Next()};
}

std::map<uint64_t, NodeScope::Trial>::iterator NodeScope::LeastRecent() {
  return std::min_element(trials_.begin(), trials_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  });
}

void NodeScope::Note(OpKind kind, const OpStats& stats, int64_t took_ns) {
  habits_[static_cast<size_t>(kind)] = policy::HabitOf(stats.decisions);
  const auto on_trial = std::exchange(on_trial_, std::nullopt);
  if (!on_trial) return;
  Trial& trial = *on_trial->trial;
  trial.trials.Took(on_trial->way, took_ns);
  const size_t best = trial.trials.best();
  if (trial.ways.size() == 1 || !trial.trials.settled() || trial.led == best) return;
  trial.led = best;
  news_ = Lead{.operations = on_trial->operations, .way = policy::NameOf(trial.ways[best])};
}

std::optional<NodeScope::Lead> NodeScope::TakeNews() {
  return std::exchange(news_, std::nullopt);
}

std::optional<OpKind> NodeScope::Follow(const Lead& lead) {
  const auto found = trials_.find(lead.operations);
  if (found == trials_.end()) return std::nullopt;
  Trial& trial = found->second;
  for (size_t way = 0; way < trial.ways.size(); ++way) {
    if (policy::NameOf(trial.ways[way]) != lead.way) continue;
    trial.trials.Follow(way);
    return trial.kind;
  }
  return std::nullopt;
}

absl::StatusOr<PlannedTask> NodeScope::MakeTask(const OpDesc& op,
                                                std::span<const RankBuffers> local,
                                                const policy::Settings& settings,
                                                const policy::Tuning& tuning,
                                                const OpenTransport& open, DoneFn done, Gpus* gpus,
                                                const OpenGpuTransport& open_gpu) {
  DeclineRelays(local);
  SPCCL_RETURN_IF_ERROR(CheckOperation(op, local.size()));
  const policy::Choice choice = policy::ChoosePlan(tuning, op, topology_);
  const policy::Algorithm algorithm = choice.algorithm;
  SPCCL_ASSIGN_OR_RETURN(const Planned* const planned, PlanFor(op, algorithm));
  PlanTask::Options options;
  options.op = op;
  options.plan = planned->plan;
  options.mine = planned->mine;
  options.ranks.resize(ranks());
  for (size_t i = 0; i < local.size(); ++i) options.ranks[local_ranks_[i]] = local[i];
  options.node_of_rank = node_of_rank_;
  options.settings = settings;
  on_trial_.reset();
  if (policy::LeavesAllOpen(settings) && settings.lossy.format == Format::kDense) {
    on_trial_ = TryNext(op, choice, tuning, OnGpu(local));
    options.settings = policy::Apply(settings, on_trial_->trial->ways[on_trial_->way]);
  }
  options.costs = tuning.costs;
  options.habit = habits_[static_cast<size_t>(op.kind)];
  const uint64_t chunk = Layout(op, options.plan->plan.chunks, 1).largest_chunk();
  options.slice_bytes = tuning.slice_bytes == 0 && choice.slice_bytes != 0
                            ? choice.slice_bytes
                            : policy::SliceBytes(tuning, op, ranks(), chunk);
  options.pool = &transport::FramePool::Shared();
  std::vector<Gpu*> rails;
  if (OnGpu(local)) {
    if (gpus == nullptr) return absl::FailedPreconditionError("there is no GPU here");
    SPCCL_ASSIGN_OR_RETURN(rails, RailsOf(*gpus, op, ranks(), local_ranks_, local));
    options.slice_bytes =
        tuning.slice_bytes != 0 ? tuning.slice_bytes : GpuSliceBytesBetweenNodes(op, chunk);
    options.open_lanes = GpuOpenLanes(rails.size(), /*stages=*/true);
  }
  // Nothing that is sent is larger than the slice, dense, in the type of its partial sums.
  const uint64_t elements = SliceElements(
      op, options.slice_bytes, rails.empty() ? kLargestSliceBytes : kLargestGpuSliceBytes);
  const DType widest = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const uint64_t largest = MaxFrameBytes(Format::kDense, widest, elements);
  const uint64_t digest = Mix(planned->digest, elements);
  const bool direct = !rails.empty() && open_gpu != nullptr;
  SPCCL_ASSIGN_OR_RETURN(auto far,
                         direct ? open_gpu(digest, largest, rails) : open(digest, largest));
  if (!rails.empty()) {
    auto gate = std::make_shared<RankGate>(*gpus, rails, local);
    options.runner =
        std::make_shared<GpuRunner>(*gpus, std::move(rails), std::move(gate), op, settings);
  }
  options.transport = std::make_unique<transport::MeshTransport>(is_local_, std::move(far));
  return PlannedTask{
      .task = std::make_unique<PlanTask>(std::move(options), std::move(done)),
      .algorithm = algorithm,
      .chooser = choice.chooser,
      .way = on_trial_ ? policy::NameOf(on_trial_->trial->ways[on_trial_->way]) : std::string()};
}

}  // namespace spccl::runtime
