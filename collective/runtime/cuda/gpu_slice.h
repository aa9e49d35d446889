// One slice of one chunk, in the GPUs' memory of a participant's ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/host/step_context.h"

namespace spccl::runtime {

// What a GPU's kernels read and write of it. What they do not reach is copied by the driver: from
// and to frames of theirs. Lives on the GPU's issuing thread, until nothing touches the slice.
class GpuSlice {
 public:
  GpuSlice(Gpus& gpus, Gpu& gpu, const StepContext& context, uint32_t participant, uint32_t chunk,
           uint64_t lane);
  GpuSlice(const GpuSlice&) = delete;
  GpuSlice& operator=(const GpuSlice&) = delete;

  uint64_t elements() const { return elements_; }
  size_t bytes() const { return elements_ * SizeOf(context_.op.dtype); }

  // As in SliceMemory: one rank's, or what is to be reduced to the type of partial sums.
  bool one_input() const { return input_ranks_.size() == 1; }
  DType InputType() const { return one_input() ? context_.op.dtype : context_.partial_type(); }
  // Where it is, in rank order.
  struct Place {
    int gpu;
    uint64_t address;
  };
  std::vector<Place> InputPlaces() const;
  std::vector<Place> OutputPlaces() const;

  // The input as kernels read it, in rank order, when what is out of reach has been enqueued to be
  // fetched.
  absl::StatusOr<std::span<const void* const>> Inputs();

  // The same slice in the memory of several ranks. What is written to all of these is complete
  // when Spread has enqueued the copies of the first to those out of reach.
  absl::StatusOr<std::span<void* const>> Outputs();
  absl::Status Spread();
  // What earlier runs have written there, as kernels read it: fetched if no output is within reach.
  absl::StatusOr<const void*> WrittenOutput();
  // Some copy has been enqueued: the stream's end must be awaited before this and its rooms go.
  bool has_copied() const { return has_copied_; }

 private:
  const MemoryView& Send(uint32_t rank) const { return context_.ranks[rank].send; }
  const MemoryView& Recv(uint32_t rank) const { return context_.ranks[rank].recv; }
  bool Reaches(const MemoryView& memory) const;
  absl::Status Copy(uint64_t to, uint64_t from);
  absl::StatusOr<void*> TakeRoom();

  Gpus& gpus_;
  Gpu& gpu_;
  const StepContext& context_;
  const uint64_t lane_;
  const uint32_t root_, owner_;  // spans of one rank point here
  const uint64_t elements_;
  const uint64_t input_offset_, output_offset_;  // in bytes
  std::span<const uint32_t> input_ranks_, output_ranks_;
  absl::InlinedVector<const void*, 8> inputs_;
  absl::InlinedVector<void*, 8> outputs_;
  std::vector<uint64_t> far_outputs_;
  std::vector<transport::Frame> rooms_;
  bool has_copied_ = false;
};

}  // namespace spccl::runtime
