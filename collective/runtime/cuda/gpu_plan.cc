#include "collective/runtime/cuda/gpu_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace spccl::runtime {
namespace {

// Between these a GPU's kernels are long beside what it costs to start and to end them. The least
// is 3.5 MiB: staging memory comes in powers of two, and a dense or a pici frame of it is within 4
// MiB.
constexpr size_t kLeastSliceBytes = size_t{7} << 19;
constexpr size_t kMostSliceBytes = size_t{16} << 20;
// So that a rail has something to do while one slice of it is being ended by the host.
constexpr size_t kSlicesPerRail = 4;
constexpr uint32_t kLanesPerRail = 4;
// Of a chunk, so that its way to another node overlaps with the work on it.
constexpr size_t kSlicesBetweenNodes = 8;

}  // namespace

absl::StatusOr<std::vector<Gpu*>> RailsOf(Gpus& gpus, const OpDesc& op, uint32_t ranks,
                                          std::span<const uint32_t> here,
                                          std::span<const RankBuffers> buffers) {
  if (buffers.size() > kMaxGpuRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat(buffers.size(), " ranks of one node have their buffers on GPUs; ",
                     kMaxGpuRanks, " are the most"));
  }
  std::set<int> used;
  const auto use = [&](uint32_t rank, const MemoryView& memory, uint64_t elements) {
    if (elements == 0 && !memory.on_gpu()) return absl::OkStatus();
    if (!memory.on_gpu()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " has its buffer in the host's memory, others on GPUs"));
    }
    if (static_cast<size_t>(memory.gpu()) >= gpus.count()) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " has its buffer on GPU ",
                                                     memory.gpu(), " of ", gpus.count()));
    }
    // A kernel that reads an element across its boundary ends the context, for all who use it.
    if (elements > 0 && memory.address() % SizeOf(op.dtype) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank, " has its buffer on GPU ", memory.gpu(),
          " at an address that is no multiple of the ", SizeOf(op.dtype), " bytes of an element"));
    }
    used.insert(memory.gpu());
    return absl::OkStatus();
  };
  for (size_t i = 0; i < buffers.size(); ++i) {
    const bool sends = !HasRoot(op.kind) || here[i] == op.root;
    if (sends) {
      SPCCL_RETURN_IF_ERROR(use(here[i], buffers[i].send, SendElements(op, ranks)));
    }
    SPCCL_RETURN_IF_ERROR(use(here[i], buffers[i].recv, RecvElements(op, ranks)));
  }
  if (used.empty()) used.insert(0);  // an operation without elements
  std::vector<Gpu*> rails;
  for (const int gpu : used) rails.push_back(&gpus.at(static_cast<size_t>(gpu)));
  return rails;
}

size_t GpuSliceBytes(const OpDesc& op, uint64_t chunk_elements, size_t rails, bool stages) {
  const DType partial = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const uint64_t bytes = chunk_elements * SizeOf(partial);
  return std::clamp<uint64_t>(bytes / (rails * kSlicesPerRail), kLeastSliceBytes,
                              stages ? kLeastSliceBytes : kMostSliceBytes);
}

size_t GpuSliceBytesBetweenNodes(const OpDesc& op, uint64_t chunk_elements) {
  const DType partial = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const uint64_t bytes = chunk_elements * SizeOf(partial);
  return std::clamp<uint64_t>(bytes / kSlicesBetweenNodes, kLeastSliceBytes / 4, kLeastSliceBytes);
}

uint32_t GpuOpenLanes(size_t rails, bool stages) {
  const auto lanes = static_cast<uint32_t>(rails) * kLanesPerRail;
  return stages ? lanes : lanes * 2;
}

}  // namespace spccl::runtime
