#include "collective/runtime/cuda/gpu_slice.h"

#include "base/status.h"

namespace spccl::runtime {

GpuSlice::GpuSlice(Gpus& gpus, Gpu& gpu, const StepContext& context, uint32_t participant,
                   uint32_t chunk, uint64_t lane)
    : gpus_(gpus),
      gpu_(gpu),
      context_(context),
      lane_(lane),
      root_(context.op.root),
      owner_(chunk),
      elements_(context.layout.SliceElements(chunk, lane)),
      input_offset_(context.layout.InputOffset(chunk, lane) * SizeOf(context.op.dtype)),
      output_offset_(context.layout.OutputOffset(chunk, lane) * SizeOf(context.op.dtype)) {
  const OpKind kind = context.op.kind;
  const std::span<const uint32_t> members = context.plan->plan.members[participant];
  const std::span<const uint32_t> owner(&owner_, 1), root(&root_, 1);
  input_ranks_ = Reduces(kind) ? members : HasRoot(kind) ? root : owner;
  const bool to_owner = kind == OpKind::kReduceScatter || kind == OpKind::kScatter;
  output_ranks_ = to_owner ? owner : members;
}

std::vector<GpuSlice::Place> GpuSlice::InputPlaces() const {
  std::vector<Place> places;
  for (const uint32_t rank : input_ranks_) {
    places.push_back({Send(rank).gpu(), Send(rank).address() + input_offset_});
  }
  return places;
}

std::vector<GpuSlice::Place> GpuSlice::OutputPlaces() const {
  std::vector<Place> places;
  for (const uint32_t rank : output_ranks_) {
    places.push_back({Recv(rank).gpu(), Recv(rank).address() + output_offset_});
  }
  return places;
}

bool GpuSlice::Reaches(const MemoryView& memory) const {
  return gpus_.reach(static_cast<size_t>(gpu_.index()), static_cast<size_t>(memory.gpu()));
}

absl::Status GpuSlice::Copy(uint64_t to, uint64_t from) {
  auto* const stream = static_cast<cuda::Stream>(gpu_.QueueOf(lane_).stream);
  const cuda::Driver& driver = *gpus_.driver();
  has_copied_ = true;
  return driver.ToStatus(driver.MemcpyAsync(to, from, bytes(), stream), "cuMemcpyAsync");
}

absl::StatusOr<void*> GpuSlice::TakeRoom() {
  SPCCL_ASSIGN_OR_RETURN(transport::Frame room, gpu_.TakeFrame(bytes()));
  rooms_.push_back(std::move(room));
  return rooms_.back().data();
}

// NOLINTBEGIN(performance-no-int-to-ptr): the driver's names for memory
absl::StatusOr<std::span<const void* const>> GpuSlice::Inputs() {
  if (!inputs_.empty()) return inputs_;
  for (const uint32_t rank : input_ranks_) {
    const MemoryView& memory = Send(rank);
    const uint64_t from = memory.address() + input_offset_;
    if (elements_ == 0 || Reaches(memory)) {
      inputs_.push_back(reinterpret_cast<const void*>(from));
      continue;
    }
    SPCCL_ASSIGN_OR_RETURN(void* const room, TakeRoom());
    SPCCL_RETURN_IF_ERROR(Copy(reinterpret_cast<uint64_t>(room), from));
    inputs_.push_back(room);
  }
  return inputs_;
}

absl::StatusOr<std::span<void* const>> GpuSlice::Outputs() {
  if (!outputs_.empty()) return outputs_;
  for (const uint32_t rank : output_ranks_) {
    const MemoryView& memory = Recv(rank);
    const uint64_t to = memory.address() + output_offset_;
    if (elements_ == 0 || Reaches(memory)) {
      outputs_.push_back(reinterpret_cast<void*>(to));
    } else {
      far_outputs_.push_back(to);
    }
  }
  if (outputs_.empty()) {
    SPCCL_ASSIGN_OR_RETURN(void* const room, TakeRoom());
    outputs_.push_back(room);
  }
  return outputs_;
}
// NOLINTEND(performance-no-int-to-ptr)

absl::StatusOr<const void*> GpuSlice::WrittenOutput() {
  SPCCL_ASSIGN_OR_RETURN(const auto outputs, Outputs());
  if (far_outputs_.size() == output_ranks_.size()) {
    SPCCL_RETURN_IF_ERROR(Copy(reinterpret_cast<uint64_t>(outputs[0]), far_outputs_[0]));
  }
  return outputs[0];
}

absl::Status GpuSlice::Spread() {
  for (const uint64_t to : far_outputs_) {
    SPCCL_RETURN_IF_ERROR(Copy(to, reinterpret_cast<uint64_t>(outputs_[0])));
  }
  return absl::OkStatus();
}

}  // namespace spccl::runtime
