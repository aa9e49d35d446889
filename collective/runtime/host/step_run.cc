#include "collective/runtime/host/step_run.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using plan::StepKind;
using transport::Frame;

StepRun::StepRun(const StepContext& context, StepArgs args)
    : context_(context),
      op_(context.op),
      args_(std::move(args)),
      use_(context.plan->uses[args_.participant][args_.step]),
      run_(context.plan->RunAt(args_.participant, args_.step)),
      partial_type_(context.partial_type()),
      chunk_(run_[0].chunk),
      memory_(context, args_.participant, chunk_, args_.lane),
      elements_(memory_.elements()) {
  const size_t room = args_.scratch.size() / 4 & ~size_t{63};
  SPCCL_CHECK(elements_ * SizeOf(partial_type_) <= room);
  part_room_ = args_.scratch.data();
  wide_room_ = part_room_ + room;
  sum_room_ = wide_room_ + room;
  output_room_ = sum_room_ + room;
}

StepResult StepRun::Run() {
  result_.status = Dispatch();
  if (result_.culprit_rank < 0) result_.culprit_rank = memory_.culprit_rank();
  WriteSpans();
  return std::move(result_);
}

void StepRun::WriteSpans() {
  SpanRing* const ring = SpanRing::OfThisThread();
  if (ring == nullptr) return;
  const auto write = [&](SpanKind kind, const WorkTime& time, Span span) {
    if (time.begin_ns == 0) return;
    span.operation = args_.operation;
    span.SetTimes(time.begin_ns, time.end_ns);
    span.kind = kind;
    span.rank = RankOf(args_.participant);
    span.lane = static_cast<uint32_t>(args_.lane);
    span.chunk = chunk_;
    span.phase = run_[0].phase;
    ring->Write(span);
  };
  const Span values{.bytes = static_cast<uint32_t>(elements_ * SizeOf(partial_type_))};
  write(SpanKind::kGather, gather_, values);
  const bool received = came_.peer != kNoRank;
  write(Combines(run_[0].kind) ? SpanKind::kReduce : SpanKind::kStore, reduce_,
        received ? came_ : values);
  write(SpanKind::kEncode, encode_, sent_);
  write(SpanKind::kSend, send_, sent_);
}

void StepRun::NoteFrame(const Frame& frame, Span* span) const {
  const auto* const header = reinterpret_cast<const FrameHeader*>(frame.data());
  span->bytes = static_cast<uint32_t>(frame.size_bytes());
  span->format = FormatOf(frame);
  if (span->format != Format::kDense && elements_ > 0) {
    span->density =
        static_cast<float>(static_cast<double>(header->nnz) / static_cast<double>(elements_));
  }
}

absl::Status StepRun::Dispatch() {
  const Step& step = run_[0];
  if (Receives(step.kind)) SPCCL_RETURN_IF_ERROR(CheckFrame(step));
  switch (step.kind) {
    case StepKind::kCopy:
      SPCCL_RETURN_IF_ERROR(Copy());
      return SendStored();
    case StepKind::kSend:
      return Send(step);
    case StepKind::kForward:
      return PassOn(run_, std::move(args_.frame));
    case StepKind::kReduceForward: {
      Sum sum;
      SPCCL_RETURN_IF_ERROR(Combine(step, /*in_frame=*/false, &sum));
      return Emit(run_, sum.data, partial_type_, std::move(sum.frame));
    }
    case StepKind::kReduceKeep:
      return ReduceKeep(step);
    case StepKind::kReduceStore:
      SPCCL_RETURN_IF_ERROR(ReduceStore(step));
      return SendStored();
    case StepKind::kStore:
    case StepKind::kStoreForward:
      SPCCL_RETURN_IF_ERROR(Store(args_.frame));
      return PassOn(run_.subspan(step.kind == StepKind::kStore ? 1 : 0), std::move(args_.frame));
  }
  return absl::InternalError("unknown step");
}

DType StepRun::TypeOnTheWay(const Step& step) const {
  const bool partial = step.phase == Phase::kReduceScatter && step.contributions > 1;
  return partial ? partial_type_ : op_.dtype;
}

absl::Status StepRun::CheckFrame(const Step& step) {
  const Frame& frame = args_.frame;
  const FrameFault fault =
      Validate(frame.data(), frame.size_bytes(), TypeOnTheWay(step), elements_);
  if (fault.ok()) {
    NoteFrame(frame, &came_);
    came_.peer = RankOf(step.from);
    came_.link = LinkTo(step.from);
    return absl::OkStatus();
  }
  result_.culprit_rank = static_cast<int>(RankOf(step.from));
  return absl::DataLossError(
      absl::StrCat("rank ", RankOf(args_.participant), " received a bad frame from rank ",
                   RankOf(step.from), " (chunk ", chunk_, ", slice ", args_.lane,
                   "): ", std::string(NameOf(fault.error)), " at byte ", fault.at, ": found ",
                   fault.found, ", expected ", std::string(NameOf(fault.bound)), fault.expected));
}

Frame StepRun::NewDenseFrame(DType type) {
  Frame frame =
      context_.pool->Take(FrameBytes(Format::kDense, type, elements_, elements_) + kEncodeSlack);
  frame.set_size_bytes(WrapDense(type, elements_, frame.data()));
  return frame;
}

absl::Status StepRun::ReadInput(Source* source) {
  source->type = memory_.InputType();
  if (Frame* const held = args_.held->Find(HeldKind::kInput, chunk_)) {
    return UseHeld(HeldKind::kInput, held, use_.keep_input, source);
  }
  if (const std::byte* const mapped = memory_.MappedInput()) {
    source->data = mapped;
    return absl::OkStatus();
  }
  // Into a frame: so a dense send needs no copy, and a reduction may be made in it.
  Frame frame = NewDenseFrame(source->type);
  source->data = ValuesOf(frame);
  {
    const Stopwatch stopwatch(&result_.stats.reduce_ns, &gather_);
    SPCCL_RETURN_IF_ERROR(memory_.ReadInput(ValuesOf(frame), part_room_, wide_room_));
  }
  if (use_.keep_input) {
    args_.held->Put(HeldKind::kInput, chunk_, std::move(frame));
  } else {
    source->spare = std::move(frame);
  }
  return absl::OkStatus();
}

absl::Status StepRun::UseHeld(HeldKind kind, Frame* held, bool keep, Source* source) {
  source->data = ValuesOf(*held);
  if (keep) return absl::OkStatus();
  source->spare = std::move(*held);
  args_.held->Drop(kind, chunk_);
  return absl::OkStatus();
}

absl::Status StepRun::ReadOperand(const Step& step, Source* source) {
  if (step.operand != Operand::kPartial) return ReadInput(source);
  if (args_.held->Find(HeldKind::kOutputs, chunk_) != nullptr) {
    *source = {.data = memory_.mapped_outputs()[0], .type = partial_type_};
    return absl::OkStatus();
  }
  Frame* const held = args_.held->Find(HeldKind::kPartial, chunk_);
  SPCCL_CHECK(held != nullptr);  // the plan was checked
  source->type = partial_type_;
  // What this step keeps takes the place of what it reads.
  const bool keep = use_.keep_partial && step.kind != StepKind::kReduceKeep;
  return UseHeld(HeldKind::kPartial, held, keep, source);
}

absl::Status StepRun::Copy() {
  const auto inputs = memory_.MappedInputs();
  if (Reduces(op_.kind) && !memory_.one_input()) return CopyReduced(inputs);
  Source input;
  SPCCL_RETURN_IF_ERROR(ReadInput(&input));
  hot_ = input.data;
  stored_ = std::move(input.spare);
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_);
  return memory_.Write(hot_, context_.streaming, /*copies_input=*/true);
}

absl::Status StepRun::CopyReduced(std::span<const void* const> inputs) {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_);
  if (memory_.all_mapped() && !inputs.empty()) {
    Reduce(op_.dtype, op_.redop, inputs, memory_.mapped_outputs(), elements_,
           context_.streaming && run_.size() == 1);
    hot_ = memory_.mapped_outputs()[0];
    return absl::OkStatus();
  }
  SPCCL_RETURN_IF_ERROR(memory_.ReadInput(sum_room_, part_room_, wide_room_));
  Finish(op_.dtype, op_.redop, sum_room_, output_room_, elements_, context_.plan->plan.ranks());
  hot_ = output_room_;
  return memory_.Write(hot_, context_.streaming);
}

absl::Status StepRun::Store(const Frame& frame) {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_, TakingIn(frame));
  if (IsDense(frame)) return memory_.Write(ValuesOf(frame), context_.streaming);
  const Stores stores = context_.streaming ? Stores::kStreaming : Stores::kAuto;
  for (void* const output : memory_.mapped_outputs()) {
    Decode(frame.data(), output, stores);
  }
  if (memory_.all_mapped()) return absl::OkStatus();
  Decode(frame.data(), output_room_, Stores::kCached);
  return memory_.WriteAttached(output_room_);
}

StepResult RunSteps(const StepContext& context, StepArgs args) {
  return StepRun(context, std::move(args)).Run();
}

}  // namespace spccl::runtime
