// One slice of one chunk, in the memory of a participant's ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "collective/runtime/host/step_context.h"

namespace spccl::runtime {

// Reads inputs and writes outputs, mapped or attached alike. Where memory is at fault, the status
// names its rank, and so does culprit_rank().
class SliceMemory {
 public:
  SliceMemory(const StepContext& context, uint32_t participant, uint32_t chunk, uint64_t lane);
  SliceMemory(const SliceMemory&) = delete;
  SliceMemory& operator=(const SliceMemory&) = delete;

  uint64_t elements() const { return elements_; }
  size_t bytes() const { return elements_ * SizeOf(context_.op.dtype); }
  int culprit_rank() const { return culprit_rank_; }

  // The input: of one rank, of the operation's type; or the reduction of several ranks' inputs, of
  // the type of partial sums.
  bool one_input() const { return input_ranks_.size() == 1; }
  DType InputType() const { return one_input() ? context_.op.dtype : context_.partial_type(); }
  // Where it is, if it is one rank's and mapped; else nullptr.
  const std::byte* MappedInput() const;
  // What is to be reduced, if all of it is mapped; else empty.
  absl::InlinedVector<const void*, 8> MappedInputs() const;
  // Makes it at `destination`, in rank order. Each room is for a slice of partial sums.
  absl::Status ReadInput(void* destination, std::byte* room, std::byte* other_room);

  // The output: the same slice in the memory of several ranks, or of one.
  std::span<void* const> mapped_outputs() const { return mapped_outputs_; }
  bool all_mapped() const { return mapped_outputs_.size() == output_ranks_.size(); }
  // Writes `data` to all of it; `data` may be one of the places. `copies_input`: it is the input,
  // and need not be written where that lies.
  absl::Status Write(const void* data, bool streaming, bool copies_input = false);
  // The part of Write that is for attached memory.
  absl::Status WriteAttached(const void* data, bool copies_input = false);
  // One of the places, or a copy in `room` if none is mapped.
  absl::Status ReadOutput(std::byte* room, const void** data);

 private:
  const MemoryView& Send(uint32_t rank) const { return context_.ranks[rank].send; }
  const MemoryView& Recv(uint32_t rank) const { return context_.ranks[rank].recv; }
  absl::Status Blame(uint32_t rank, const absl::Status& status);
  bool IsInputToo(uint32_t output_rank) const;

  const StepContext& context_;
  const uint32_t root_, owner_;  // spans of one rank point here
  const uint64_t elements_;
  const uint64_t input_offset_, output_offset_;  // in bytes
  std::span<const uint32_t> input_ranks_, output_ranks_;
  absl::InlinedVector<void*, 8> mapped_outputs_;
  int culprit_rank_ = -1;
};

}  // namespace spccl::runtime
