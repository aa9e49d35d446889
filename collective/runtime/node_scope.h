// Builds the tasks of a communicator that spans nodes, on one of its nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/policy/choose_plan.h"
#include "collective/policy/settings.h"
#include "collective/policy/trials.h"
#include "collective/policy/tuning.h"
#include "collective/policy/ways.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"
#include "collective/transport/transport.h"

namespace spccl::runtime {

class Gpu;
class Gpus;
struct PreparedPlan;

// Opens an operation's transport to the ranks of other nodes, and tells them so: on all nodes with
// the same `plan_digest` (OperationFacts::plan) unless they disagree, which is then an error. No
// frame of the operation is larger than `largest_frame_bytes`. Called once, from within MakeTask.
using OpenTransport = std::function<absl::StatusOr<std::unique_ptr<transport::Transport>>(
    uint64_t plan_digest, uint64_t largest_frame_bytes)>;

// The same for a transport that takes frames from the memory of GPUs (Transport::TakesGpuFrames):
// those of lane l are on rails[l % rails.size()] here.
using OpenGpuTransport = std::function<absl::StatusOr<std::unique_ptr<transport::Transport>>(
    uint64_t plan_digest, uint64_t largest_frame_bytes, std::span<Gpu* const> rails)>;

struct PlannedTask {
  std::unique_ptr<Task> task;
  policy::Algorithm algorithm = policy::Algorithm::kAuto;  // the one that was chosen
  policy::Chooser chooser = policy::Chooser::kCostModel;   // and by whom
  std::string way;  // of sending, where that is by trial (policy/ways.h); else empty
};

// A communicator as one of its nodes sees it; one a communicator. Keeps the plans that its
// operations used, each checked once. Thread-compatible: the core thread's.
class NodeScope {
 public:
  // The node of every rank, by global rank, and which of them is here; the numbers are any that all
  // nodes agree on. InvalidArgument if no rank is here, or more than a communicator may have.
  static absl::StatusOr<std::unique_ptr<NodeScope>> Create(std::vector<uint32_t> node_of_rank,
                                                           uint32_t here);
  ~NodeScope();

  uint32_t ranks() const { return static_cast<uint32_t>(node_of_rank_.size()); }
  // Global numbers of the ranks of this node, ascending.
  std::span<const uint32_t> local_ranks() const { return local_ranks_; }

  // A task for this node's part of `op`; like runtime::MakeTask otherwise. `local` are the buffers
  // of local_ranks(), in that order. `tuning` must be the same on all nodes for this operation;
  // codec and thresholds of `settings` are this node's own (its algorithm is not looked at: it goes
  // into the tuning where that is made). Culprits in results are global ranks.
  //
  // Where local buffers are on GPUs (cuda/make_gpu_task.h), which are `gpus`', the task runs
  // itself, as MakeGpuTask's. All nodes then have theirs on GPUs, for their slices are others.
  // Frames between nodes go by what `open_gpu` opens, or, without one, through the host by what
  // `open` does; the same on all nodes.
  //
  // An operation without elements runs too, so that ranks that disagree learn it. The task's end is
  // told from within RunOne or Cancel, never by a transport's thread; it may be idle for long,
  // while it waits for frames.
  absl::StatusOr<PlannedTask> MakeTask(const OpDesc& op, std::span<const RankBuffers> local,
                                       const policy::Settings& settings,
                                       const policy::Tuning& tuning, const OpenTransport& open,
                                       DoneFn done, Gpus* gpus = nullptr,
                                       const OpenGpuTransport& open_gpu = nullptr);

  // Tells how the operation of the last MakeTask went, and how long it took: where a threshold is
  // auto, the next of its kind leans towards that, or goes the way that has been fastest. Of one
  // that failed nothing is told.
  void Note(OpKind kind, const OpStats& stats, int64_t took_ns);

  // Which way was fastest, as one node saw it: nodes that go different ways make each other's slow,
  // so all go that of one, which leads.
  struct Lead {
    uint64_t operations = 0;  // which: a digest of what they have in common
    std::string way;          // policy::NameOf
  };
  // The leader's: what the last Note changed, once all ways have been tried. To be told to the
  // other nodes.
  std::optional<Lead> TakeNews();
  // The others'. The kind of those operations; empty: there were none here, or this node does not
  // try that way, as its codec and thresholds are its own, and goes on as it did.
  std::optional<OpKind> Follow(const Lead& lead);

 private:
  using PlanKey = std::tuple<OpKind, uint32_t, policy::Algorithm>;  // with the root
  struct Planned {
    std::shared_ptr<const PreparedPlan> plan;
    std::vector<uint32_t> mine;  // participants
    uint64_t digest = 0;
  };
  struct Trial {
    OpKind kind;
    std::vector<policy::Way> ways;
    policy::Trials trials;
    std::optional<size_t> led = {};  // what TakeNews() has told
    uint64_t used = 0;               // by trials_used_
  };
  struct OnTrial {
    uint64_t operations;
    Trial* trial;
    size_t way;
  };

  NodeScope(std::vector<uint32_t> node_of_rank, uint32_t here);
  absl::Status CheckOperation(const OpDesc& op, size_t buffers) const;
  // Valid until the next call.
  absl::StatusOr<const Planned*> PlanFor(const OpDesc& op, policy::Algorithm algorithm);
  // Valid until the next call.
  OnTrial TryNext(const OpDesc& op, const policy::Choice& choice, const policy::Tuning& tuning,
                  bool on_gpu);
  std::map<uint64_t, Trial>::iterator LeastRecent();

  const std::vector<uint32_t> node_of_rank_;
  const policy::Topology topology_;
  std::vector<bool> is_local_;  // by rank
  std::vector<uint32_t> local_ranks_;
  std::map<PlanKey, Planned> plans_;
  std::array<policy::Habit, kOpKindCount> habits_{};
  std::map<uint64_t, Trial> trials_;
  uint64_t trials_used_ = 0;         // how often any was
  std::optional<OnTrial> on_trial_;  // the last task
  std::optional<Lead> news_;
};

}  // namespace spccl::runtime
