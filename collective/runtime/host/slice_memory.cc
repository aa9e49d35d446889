#include "collective/runtime/host/slice_memory.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {
namespace {

// A sum that is divided at the end is a sum until then.
RedOp PartialOp(RedOp op) {
  return op == RedOp::kAvg ? RedOp::kSum : op;
}

}  // namespace

SliceMemory::SliceMemory(const StepContext& context, uint32_t participant, uint32_t chunk,
                         uint64_t lane)
    : context_(context),
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
  for (const uint32_t rank : output_ranks_) {
    if (Recv(rank).mapped()) mapped_outputs_.push_back(Recv(rank).data() + output_offset_);
  }
}

absl::Status SliceMemory::Blame(uint32_t rank, const absl::Status& status) {
  if (status.ok()) return status;
  culprit_rank_ = static_cast<int>(rank);
  return Annotate(status, absl::StrCat("rank ", rank));
}

const std::byte* SliceMemory::MappedInput() const {
  if (input_ranks_.size() != 1 || !Send(input_ranks_[0]).mapped()) return nullptr;
  return Send(input_ranks_[0]).data() + input_offset_;
}

absl::InlinedVector<const void*, 8> SliceMemory::MappedInputs() const {
  absl::InlinedVector<const void*, 8> inputs;
  for (const uint32_t rank : input_ranks_) {
    if (!Send(rank).mapped()) return {};
    inputs.push_back(Send(rank).data() + input_offset_);
  }
  return inputs;
}

absl::Status SliceMemory::ReadInput(void* destination, std::byte* room, std::byte* other_room) {
  const auto read = [this](uint32_t rank, void* to) {
    return Blame(rank, Send(rank).Read(input_offset_, to, bytes()));
  };
  if (one_input()) return read(input_ranks_[0], destination);
  const OpDesc& op = context_.op;
  const DType type = context_.partial_type();
  const bool wide = type != op.dtype;
  if (const auto inputs = MappedInputs(); !wide && !inputs.empty()) {
    Reduce(type, PartialOp(op.redop), inputs, {&destination, 1}, elements_, false);
    return absl::OkStatus();
  }
  bool first = true;
  for (const uint32_t rank : input_ranks_) {
    const void* part = room;
    if (Send(rank).mapped()) {
      part = Send(rank).data() + input_offset_;
    } else {
      SPCCL_RETURN_IF_ERROR(read(rank, room));
    }
    if (first || wide) {
      void* const widened = first ? destination : other_room;
      Widen(op.dtype, op.redop, part, widened, elements_);
      part = widened;
    }
    if (!first) Accumulate(type, op.redop, part, destination, elements_);
    first = false;
  }
  return absl::OkStatus();
}

absl::Status SliceMemory::ReadOutput(std::byte* room, const void** data) {
  if (!mapped_outputs_.empty()) {
    *data = mapped_outputs_[0];
    return absl::OkStatus();
  }
  *data = room;
  const uint32_t rank = output_ranks_[0];
  return Blame(rank, Recv(rank).Read(output_offset_, room, bytes()));
}

// An attached place in both: where the operation is in place.
bool SliceMemory::IsInputToo(uint32_t output_rank) const {
  const MemoryView& in = Send(input_ranks_[0]);
  const MemoryView& out = Recv(output_rank);
  return !in.mapped() && in.SameByte(input_offset_, out, output_offset_);
}

absl::Status SliceMemory::WriteAttached(const void* data, bool copies_input) {
  for (const uint32_t rank : output_ranks_) {
    if (Recv(rank).mapped() || (copies_input && IsInputToo(rank))) continue;
    SPCCL_RETURN_IF_ERROR(Blame(rank, Recv(rank).Write(output_offset_, data, bytes())));
  }
  return absl::OkStatus();
}

absl::Status SliceMemory::Write(const void* data, bool streaming, bool copies_input) {
  CopyToMany(data, mapped_outputs_, bytes(), streaming);
  return WriteAttached(data, copies_input);
}

}  // namespace spccl::runtime
