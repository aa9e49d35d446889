// Builds the task that runs an operation over the ranks of this node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/policy/settings.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

struct TaskOptions {
  // Node of each rank, for the intra and inter thresholds of the ring; empty: all on one node.
  std::span<const uint32_t> node_of_rank;
  // Bytes of a slice, the unit of work and of compression; 0: the algorithm's measured default.
  size_t slice_bytes = 0;
};

// Which algorithm an operation runs with on one node: the ring where `settings` say so and it has a
// plan for the operation, else the local plan.
policy::Algorithm Resolve(const policy::Settings& settings, OpKind op);

// A task for `op` over ranks.size() ranks; what the arguments point to is copied. Relays are used
// if every rank offers one and the algorithm is the local plan; else those that are there are
// declined. The memory behind the views must stay until DoneFn has been called. InvalidArgument for
// an operation that no task can run (no rank, too many ranks, a root that is not a rank, sizes that
// overflow).
//
// The task must outlive every running RunOne and Cancel: keep it in a shared_ptr, and let each
// thread that calls into it hold its own. DoneFn is called from within RunOne or Cancel.
absl::StatusOr<std::unique_ptr<Task>> MakeTask(const OpDesc& op, std::span<const RankBuffers> ranks,
                                               const policy::Settings& settings,
                                               const TaskOptions& options, DoneFn done);

}  // namespace spccl::runtime
