// Builds the task that runs an operation over the ranks of this node whose buffers are in the
// memory of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "collective/op.h"
#include "collective/policy/settings.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/cuda/path_rates.h"
#include "collective/runtime/rank_buffers.h"
#include "collective/runtime/task.h"

namespace spccl::runtime {

struct GpuTaskOptions {
  // Bytes of a slice, the unit of work and of compression; 0: by the size of the operation.
  size_t slice_bytes = 0;
  uint32_t open_lanes = 0;  // 0: enough for the GPUs
  // What large all-reduces over several GPUs are split by between their links and the host; null:
  // all goes over the links.
  std::shared_ptr<PathRates> paths = nullptr;
  uint64_t communicator = 0;                  // the operation's, of those that `paths` tells apart
  size_t host_slice_bytes = size_t{2} << 20;  // of the host's part; a power of two
};

// Whether the operation is one for MakeGpuTask: a rank's buffers are on a GPU.
bool OnGpu(std::span<const RankBuffers> ranks);

// As MakeTask, for buffers on GPUs (MemoryView::Device), all of them; a buffer that the operation
// does not use may be an empty view. InvalidArgument if one is elsewhere, or on a GPU that is not
// one of `gpus`, which outlives the task.
//
// The task runs by itself (Task::RunsItself): SetOperation, then Start, and keep it in a shared_ptr
// until DoneFn has been called, which a thread of a GPU does, or Start or Cancel. Start it also if
// the operation has failed meanwhile, or Cancel it: either way DoneFn comes, and every rank's
// `done` word (RankBuffers::order) is set, before it, or after an error right after it, so that no
// rank's stream waits for ever.
//
// Task::ForChannels, if there is any, is to be queued for channel threads before Start.
//
// A rank that has died writes `ready` no more: Cancel sets the words that are missing, so that
// nothing waits for it, and the operation ends without touching a buffer that was not ready.
// DoneFn comes when no GPU touches the buffers any more; a GPU that does not end its work within
// Gpus::Options::stuck_after_ns is taken for broken.
absl::StatusOr<std::unique_ptr<Task>> MakeGpuTask(Gpus& gpus, const OpDesc& op,
                                                  std::span<const RankBuffers> ranks,
                                                  const policy::Settings& settings,
                                                  const GpuTaskOptions& options, DoneFn done);

// Between nodes: NodeScope::MakeTask with `gpus` (node_scope.h) makes such a task where local
// buffers are on GPUs.

}  // namespace spccl::runtime
