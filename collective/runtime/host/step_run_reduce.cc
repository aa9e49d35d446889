#include "collective/runtime/host/step_run.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "kernels/redop.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using transport::Frame;

bool StepRun::AddsSparse() const {
  return !IsDense(args_.frame) && SparsityPays(op_.dtype, op_.redop);
}

StepRun::Sum StepRun::NewSum(bool in_frame) {
  if (!in_frame) return {.data = sum_room_};
  Frame frame = NewDenseFrame(partial_type_);
  std::byte* const data = ValuesOf(frame);
  return {.data = data, .frame = std::move(frame)};
}

absl::Status StepRun::Combine(const Step& step, bool in_frame, Sum* sum) {
  Source own;
  SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_, TakingIn(args_.frame));
  return AddsSparse() ? CombineSparse(std::move(own), in_frame, sum)
                      : CombineDense(step, own, in_frame, sum);
}

absl::Status StepRun::CombineSparse(Source own, bool in_frame, Sum* sum) {
  if (own.spare.valid() && own.spare.unique() && own.type == partial_type_) {
    sum->data = ValuesOf(own.spare);
    sum->frame = std::move(own.spare);
  } else {
    *sum = NewSum(in_frame);
    CopyWidening(own.data, own.type, sum->data);
  }
  ReduceInto(args_.frame.data(), sum->data, partial_type_);
  return absl::OkStatus();
}

absl::Status StepRun::CombineDense(const Step& step, const Source& own, bool in_frame, Sum* sum) {
  const DType came = TypeOnTheWay(step);
  const bool dense = IsDense(args_.frame);
  if (dense && came == partial_type_ && args_.frame.unique()) {
    sum->data = ValuesOf(args_.frame);
    sum->frame = std::move(args_.frame);
  } else {
    *sum = NewSum(in_frame);
    const std::byte* values = part_room_;
    if (dense) {
      values = ValuesOf(args_.frame);
    } else {
      // Nothing that this side sends; but the sender chooses the format.
      Decode(args_.frame.data(), part_room_);
    }
    CopyWidening(values, came, sum->data);
  }
  const void* wide = own.data;
  if (own.type != partial_type_) {
    Widen(op_.dtype, op_.redop, own.data, wide_room_, elements_);
    wide = wide_room_;
  }
  Accumulate(partial_type_, op_.redop, wide, sum->data, elements_);
  return absl::OkStatus();
}

void StepRun::CopyWidening(const void* from, DType type, std::byte* to) {
  if (type == partial_type_) {
    void* const outputs[] = {to};
    CopyToMany(from, outputs, elements_ * SizeOf(type), /*streaming=*/false);
  } else {
    Widen(op_.dtype, op_.redop, from, to, elements_);
  }
}

CodecWork* StepRun::TakingIn(const Frame& frame) {
  const auto* const header = reinterpret_cast<const FrameHeader*>(frame.data());
  CodecWork& work = result_.stats.taken_in[header->format];
  work.dense_bytes += elements_ * SizeOf(static_cast<DType>(header->dtype));
  return &work;
}

absl::Status StepRun::ReduceKeep(const Step& step) {
  if (AddsInOutputs(step)) {
    ReduceInOutputs();
    args_.held->Put(HeldKind::kOutputs, chunk_, Frame());
    return Emit(run_.subspan(1), hot_, partial_type_, Frame());
  }
  const bool to_outputs = MaySumInOutputs() && AddsSparse();
  if (to_outputs && run_.size() == 1) return StartInOutputs(step);
  Sum sum;
  SPCCL_RETURN_IF_ERROR(Combine(step, /*in_frame=*/!to_outputs, &sum));
  args_.held->Drop(HeldKind::kOutputs, chunk_);
  if (to_outputs) {
    SPCCL_RETURN_IF_ERROR(PutInOutputs(sum.data));
  } else if (use_.keep_partial) {
    args_.held->Put(HeldKind::kPartial, chunk_, sum.frame.Share());
  }
  return Emit(run_.subspan(1), sum.data, partial_type_, std::move(sum.frame));
}

absl::Status StepRun::StartInOutputs(const Step& step) {
  Source own;
  SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
  SPCCL_RETURN_IF_ERROR(PutInOutputs(own.data));
  ReduceInOutputs();
  return absl::OkStatus();
}

absl::Status StepRun::ReduceStore(const Step& step) {
  const uint32_t ranks = context_.plan->plan.ranks();
  const bool same_type = op_.dtype == partial_type_;
  Source own;
  if (IsDense(args_.frame) && TypeOnTheWay(step) == op_.dtype && OperandType(step) == op_.dtype &&
      (op_.redop != RedOp::kAvg || ranks == 2)) {
    SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
    return ReduceStoreDense(own);
  }
  if (AddsInOutputs(step)) {
    ReduceInOutputs();
    CountResult();
    return absl::OkStatus();
  }
  Sum sum;
  SPCCL_RETURN_IF_ERROR(Combine(step, /*in_frame=*/false, &sum));
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_);
  std::byte* result = sum.data;
  if (!same_type || op_.redop == RedOp::kAvg) {
    if (!same_type) result = output_room_;
    Finish(op_.dtype, op_.redop, sum.data, result, elements_, ranks);
  }
  hot_ = result;
  if (same_type) stored_ = std::move(sum.frame);
  return WriteResult(result);
}

// Counted piece by piece just before it is written: both then find it in the nearest cache.
absl::Status StepRun::WriteResult(const std::byte* result) {
  if (!CountsResult()) return memory_.Write(result, context_.streaming);
  constexpr uint64_t kPiece = 8192;
  const size_t width = SizeOf(op_.dtype);
  absl::InlinedVector<void*, 8> outputs(memory_.mapped_outputs().begin(),
                                        memory_.mapped_outputs().end());
  uint64_t nnz = 0;
  for (uint64_t at = 0; at < elements_; at += kPiece) {
    const uint64_t elements = std::min(kPiece, elements_ - at);
    nnz += CountNonzeros(op_.dtype, result + at * width, elements);
    CopyToMany(result + at * width, outputs, elements * width, context_.streaming);
    for (void*& output : outputs) output = static_cast<std::byte*>(output) + elements * width;
  }
  NoteCounted(nnz);
  return memory_.WriteAttached(result);
}

DType StepRun::OperandType(const Step& step) const {
  return step.operand == Operand::kPartial ? partial_type_ : memory_.InputType();
}

bool StepRun::MaySumInOutputs() const {
  const bool overwrites = use_.keep_input && LiesInOutput(memory_.MappedInput());
  // Lossy sends keep what they have sent apart (TakeAsSent).
  const bool lossy = policy::AppliesTo(context_.lossy, op_, Phase::kReduceScatter);
  return !lossy && use_.ends_reduced && op_.redop == RedOp::kSum && op_.dtype == partial_type_ &&
         memory_.all_mapped() && !overwrites;
}

bool StepRun::LiesInOutput(const void* input) const {
  return input != nullptr && !memory_.mapped_outputs().empty() &&
         input == memory_.mapped_outputs()[0];
}

bool StepRun::AddsInOutputs(const Step& step) const {
  if (!MaySumInOutputs() || !AddsSparse()) return false;
  return args_.held->Find(HeldKind::kOutputs, chunk_) != nullptr ||
         (step.operand == Operand::kInput && LiesInOutput(memory_.MappedInput()));
}

void StepRun::ReduceInOutputs() {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_, TakingIn(args_.frame));
  for (void* const output : memory_.mapped_outputs()) {
    ReduceInto(args_.frame.data(), output, op_.dtype);
  }
  if (!use_.keep_input) args_.held->Drop(HeldKind::kInput, chunk_);
  hot_ = memory_.mapped_outputs()[0];
}

absl::Status StepRun::PutInOutputs(const void* data) {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_);
  args_.held->Put(HeldKind::kOutputs, chunk_, Frame());
  return memory_.Write(data, context_.streaming);
}

absl::Status StepRun::ReduceStoreDense(const Source& own) {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_, TakingIn(args_.frame));
  const void* const inputs[] = {ValuesOf(args_.frame), own.data};
  absl::InlinedVector<void*, 8> outputs(memory_.mapped_outputs().begin(),
                                        memory_.mapped_outputs().end());
  if (!memory_.all_mapped()) outputs.push_back(output_room_);
  const bool read_again = !memory_.all_mapped() || run_.size() > 1;
  Reduce(op_.dtype, op_.redop, inputs, outputs, elements_, context_.streaming && !read_again);
  hot_ = outputs.back();
  CountResult();
  return memory_.WriteAttached(hot_);
}

bool StepRun::CountsResult() const {
  return run_.size() > 1 && op_.kind == OpKind::kAllReduce && args_.policy->compresses() &&
         elements_ > 0;
}

void StepRun::CountResult() {
  if (CountsResult()) NoteCounted(CountNonzeros(op_.dtype, hot_, elements_));
}

void StepRun::NoteCounted(uint64_t nnz) {
  args_.policy->Counted(nnz, elements_);
  result_.stats.result_nnz += nnz;
  result_.stats.result_elements += elements_;
}

}  // namespace spccl::runtime
