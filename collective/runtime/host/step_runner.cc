#include "collective/runtime/host/step_runner.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/runtime/host/slice_memory.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "kernels/redop.h"

namespace spccl::runtime {
namespace {

using plan::Operand;
using plan::Step;
using plan::StepKind;
using policy::Decision;
using policy::Reason;
using transport::Frame;

// Adds the time of its life to a count.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* sum_ns) : sum_ns_(sum_ns), begin_ns_(MonotonicNanos()) {}
  ~Stopwatch() { *sum_ns_ += static_cast<uint64_t>(MonotonicNanos() - begin_ns_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  uint64_t* const sum_ns_;
  const int64_t begin_ns_;
};

const FrameHeader& HeaderOf(const Frame& frame) {
  return *reinterpret_cast<const FrameHeader*>(frame.data());
}
bool IsDense(const Frame& frame) {
  return HeaderOf(frame).format == static_cast<uint8_t>(Format::kDense);
}
// Of a dense frame.
std::byte* ValuesOf(const Frame& frame) {
  return frame.data() + sizeof(FrameHeader);
}

class Runner {
 public:
  Runner(const StepContext& context, StepArgs args)
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

  StepResult Run() {
    result_.status = Dispatch();
    if (result_.culprit_rank < 0) result_.culprit_rank = memory_.culprit_rank();
    return std::move(result_);
  }

 private:
  // A slice to read: where it is, its type, and the held frame that it is in, if that is not needed
  // after this run.
  struct Source {
    const void* data = nullptr;
    DType type = DType::kFloat32;
    Frame spare = {};
  };
  // A slice of partial sums that may be written to, and the dense frame that it is in, if it is.
  struct Sum {
    std::byte* data = nullptr;
    Frame frame = {};
  };

  absl::Status Dispatch() {
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
        SPCCL_RETURN_IF_ERROR(Store());
        return PassOn(run_.subspan(step.kind == StepKind::kStore ? 1 : 0), std::move(args_.frame));
    }
    return absl::InternalError("unknown step");
  }

  uint32_t RankOf(uint32_t participant) const { return context_.plan->first_rank[participant]; }

  DType TypeOnTheWay(const Step& step) const {
    const bool partial = step.phase == Phase::kReduceScatter && step.contributions > 1;
    return partial ? partial_type_ : op_.dtype;
  }

  absl::Status CheckFrame(const Step& step) {
    const Frame& frame = args_.frame;
    const FrameFault fault =
        Validate(frame.data(), frame.size_bytes(), TypeOnTheWay(step), elements_);
    if (fault.ok()) return absl::OkStatus();
    result_.culprit_rank = static_cast<int>(RankOf(step.from));
    return absl::DataLossError(absl::StrCat(
        "rank ", RankOf(args_.participant), " received a bad frame from rank ", RankOf(step.from),
        " (chunk ", chunk_, ", slice ", args_.lane, "): ", std::string(NameOf(fault.error)),
        " at byte ", fault.at, ": found ", fault.found, ", expected ", fault.expected));
  }

  Frame NewDenseFrame(DType type) {
    Frame frame =
        context_.pool->Take(FrameBytes(Format::kDense, type, elements_, elements_) + kEncodeSlack);
    frame.set_size_bytes(WrapDense(type, elements_, frame.data()));
    return frame;
  }

  // Sources.

  absl::Status ReadInput(Source* source) {
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
    SPCCL_RETURN_IF_ERROR(memory_.ReadInput(ValuesOf(frame), part_room_, wide_room_));
    if (use_.keep_input) {
      args_.held->Put(HeldKind::kInput, chunk_, std::move(frame));
    } else {
      source->spare = std::move(frame);
    }
    return absl::OkStatus();
  }

  absl::Status UseHeld(HeldKind kind, Frame* held, bool keep, Source* source) {
    source->data = ValuesOf(*held);
    if (keep) return absl::OkStatus();
    source->spare = std::move(*held);
    args_.held->Drop(kind, chunk_);
    return absl::OkStatus();
  }

  absl::Status ReadOperand(const Step& step, Source* source) {
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

  // Reductions.

  Sum NewSum(bool in_frame) {
    if (!in_frame) return {.data = sum_room_};
    Frame frame = NewDenseFrame(partial_type_);
    std::byte* const data = ValuesOf(frame);
    return {.data = data, .frame = std::move(frame)};
  }

  bool AddsSparse() const { return !IsDense(args_.frame) && SparsityPays(op_.dtype, op_.redop); }

  // *sum = what came, combined with the operand. In a frame that is there already, where there is
  // one that nobody else reads: no copy. in_frame: anyway in a frame.
  absl::Status Combine(const Step& step, bool in_frame, Sum* sum) {
    Source own;
    SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
    return AddsSparse() ? CombineSparse(std::move(own), in_frame, sum)
                        : CombineDense(step, own, in_frame, sum);
  }

  absl::Status CombineSparse(Source own, bool in_frame, Sum* sum) {
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

  absl::Status CombineDense(const Step& step, const Source& own, bool in_frame, Sum* sum) {
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

  void CopyWidening(const void* from, DType type, std::byte* to) {
    if (type == partial_type_) {
      if (elements_ > 0) std::memcpy(to, from, elements_ * SizeOf(type));
    } else {
      Widen(op_.dtype, op_.redop, from, to, elements_);
    }
  }

  absl::Status ReduceKeep(const Step& step) {
    if (AddsInOutputs(step)) {
      ReduceInOutputs();
      args_.held->Put(HeldKind::kOutputs, chunk_, Frame());
      return Emit(run_.subspan(1), hot_, partial_type_, Frame());
    }
    const bool to_outputs = MaySumInOutputs() && AddsSparse();
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

  // hot_: the result as it was left in the caches, or in the output.
  absl::Status ReduceStore(const Step& step) {
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
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
    std::byte* result = sum.data;
    if (!same_type || op_.redop == RedOp::kAvg) {
      if (!same_type) result = output_room_;
      Finish(op_.dtype, op_.redop, sum.data, result, elements_, ranks);
    }
    hot_ = result;
    CountResult();
    if (same_type) stored_ = std::move(sum.frame);
    return memory_.Write(result, context_.streaming);
  }

  DType OperandType(const Step& step) const {
    return step.operand == Operand::kPartial ? partial_type_ : memory_.InputType();
  }

  // Sums in the outputs. What is there is read and written only where a sparse frame has values.

  // Whether this step's chunk may be summed up there.
  bool MaySumInOutputs() const {
    const bool overwrites = use_.keep_input && LiesInOutput(memory_.MappedInput());
    return use_.ends_reduced && op_.redop == RedOp::kSum && op_.dtype == partial_type_ &&
           memory_.all_mapped() && !overwrites;
  }
  bool LiesInOutput(const void* input) const {
    return input != nullptr && !memory_.mapped_outputs().empty() &&
           input == memory_.mapped_outputs()[0];
  }
  // Whether what came can be added to what the outputs hold, which is the operand.
  bool AddsInOutputs(const Step& step) const {
    if (!MaySumInOutputs() || !AddsSparse()) return false;
    return args_.held->Find(HeldKind::kOutputs, chunk_) != nullptr ||
           (step.operand == Operand::kInput && LiesInOutput(memory_.MappedInput()));
  }

  void ReduceInOutputs() {
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
    for (void* const output : memory_.mapped_outputs()) {
      ReduceInto(args_.frame.data(), output, op_.dtype);
    }
    if (!use_.keep_input) args_.held->Drop(HeldKind::kInput, chunk_);
    hot_ = memory_.mapped_outputs()[0];
  }

  // `data`, which is in the cache, is the input or a partial.
  absl::Status PutInOutputs(const void* data) {
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
    args_.held->Put(HeldKind::kOutputs, chunk_, Frame());
    return memory_.Write(data, context_.streaming);
  }

  // One pass over what came, the operand and the outputs.
  absl::Status ReduceStoreDense(const Source& own) {
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
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

  // The all-gather decides by the shard's own sparsity, and the shard is in the cache.
  void CountResult() {
    if (run_.size() == 1 || op_.kind != OpKind::kAllReduce || !args_.policy->compresses() ||
        elements_ == 0) {
      return;
    }
    const uint64_t nnz = CountNonzeros(op_.dtype, hot_, elements_);
    args_.policy->Counted(nnz, elements_);
    result_.stats.result_nnz += nnz;
    result_.stats.result_elements += elements_;
  }

  // Copies and stores.

  absl::Status Copy() {
    const auto inputs = memory_.MappedInputs();
    if (Reduces(op_.kind) && !memory_.one_input()) return CopyReduced(inputs);
    Source input;
    SPCCL_RETURN_IF_ERROR(ReadInput(&input));
    hot_ = input.data;
    stored_ = std::move(input.spare);
    return memory_.Write(hot_, context_.streaming, /*copies_input=*/true);
  }

  // The only participant: its input is the result.
  absl::Status CopyReduced(std::span<const void* const> inputs) {
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

  absl::Status Store() {
    const Stopwatch stopwatch(&result_.stats.reduce_ns);
    if (IsDense(args_.frame)) return memory_.Write(ValuesOf(args_.frame), context_.streaming);
    const Stores stores = context_.streaming ? Stores::kStreaming : Stores::kAuto;
    for (void* const output : memory_.mapped_outputs()) {
      Decode(args_.frame.data(), output, stores);
    }
    if (memory_.all_mapped()) return absl::OkStatus();
    Decode(args_.frame.data(), output_room_, Stores::kCached);
    return memory_.WriteAttached(output_room_);
  }

  // Sends.

  absl::Status Send(const Step& step) {
    if (step.operand == Operand::kOutput) {
      if (Frame* const held = args_.held->Find(HeldKind::kFinal, chunk_)) {
        return PassOn(run_, held->Share());
      }
      Source output{.type = op_.dtype};
      SPCCL_RETURN_IF_ERROR(memory_.ReadOutput(part_room_, &output.data));
      return Emit(run_, output.data, op_.dtype, Frame());
    }
    Source source;
    SPCCL_RETURN_IF_ERROR(ReadOperand(step, &source));
    Frame frame = std::move(source.spare);
    if (!frame.valid()) {
      const HeldKind kind =
          step.operand == Operand::kPartial ? HeldKind::kPartial : HeldKind::kInput;
      if (const Frame* const held = args_.held->Find(kind, chunk_)) frame = held->Share();
    }
    SPCCL_RETURN_IF_ERROR(Emit(run_, source.data, source.type, std::move(frame)));
    // Now that the encoder has read the input; what comes is added there, and it is read no more
    // unless a dense frame comes.
    const bool puts = step.operand == Operand::kInput && MaySumInOutputs() &&
                      result_.decision.format != Format::kDense &&
                      !LiesInOutput(memory_.MappedInput());
    return puts ? PutInOutputs(source.data) : absl::OkStatus();
  }

  // What the run's first step has stored, to all that it is to be sent to.
  absl::Status SendStored() { return Emit(run_.subspan(1), hot_, op_.dtype, std::move(stored_)); }

  DType SentType(const Step& step) const {
    return step.kind == StepKind::kReduceForward ? partial_type_ : TypeOnTheWay(step);
  }

  // Sends the slice at `values`, of `type`, to where `sends` say. `holder`, if valid, is a dense
  // frame with these values.
  absl::Status Emit(std::span<const Step> sends, const void* values, DType type, Frame holder) {
    if (sends.empty()) return absl::OkStatus();
    SPCCL_CHECK(type == SentType(sends[0]));
    Frame frame;
    {
      const Stopwatch stopwatch(&result_.stats.encode_ns);
      policy::Link link = policy::Link::kIntra;
      for (const Step& send : sends) link = std::max(link, LinkTo(send.to));
      result_.decision = args_.policy->Next(sends[0].phase, link, elements_);
      frame = Encoded(values, type, std::move(holder));
    }
    if (use_.keep_frame && sends[0].operand == Operand::kOutput) {
      args_.held->Put(HeldKind::kFinal, chunk_, frame.Share());
    }
    return Post(sends, type, std::move(frame));
  }

  Frame Encoded(const void* values, DType type, Frame holder) {
    Decision& decision = result_.decision;
    const bool counted = decision.count_first;
    if (counted) {
      const uint64_t nnz = CountNonzeros(type, values, elements_);
      decision = args_.policy->Choose(decision, type, nnz, elements_);
      CountInput(nnz);
    }
    Frame frame;
    if (decision.format != Format::kDense) {
      frame = Compressed(values, type, counted);
    } else if (elements_ > 0 && !counted) {
      result_.density_known = args_.policy->density().has_value();
      args_.policy->SentDense();
    }
    if (decision.format != Format::kDense) return frame;
    if (holder.valid()) return holder;
    if (!frame.valid()) frame = context_.pool->Take(DenseBytes(type) + kEncodeSlack);
    frame.set_size_bytes(Encode(Format::kDense, type, values, elements_, frame.data()).frame_bytes);
    return frame;
  }

  // Turns the decision into a dense one if nothing is gained; the frame then is only memory.
  // `counted`: the policy knows the density already.
  Frame Compressed(const void* values, DType type, bool counted) {
    Decision& decision = result_.decision;
    Frame frame =
        context_.pool->Take(MaxFrameBytes(decision.format, type, elements_) + kEncodeSlack);
    const auto encoded = Encode(decision.format, type, values, elements_, frame.data());
    frame.set_size_bytes(encoded.frame_bytes);
    result_.density_known = true;
    if (!counted) {
      if (decision.reason == Reason::kFirst) CountInput(encoded.nnz);
      args_.policy->Compressed(encoded.nnz, elements_);
    }
    if (encoded.frame_bytes >= DenseBytes(type)) {
      decision.format = Format::kDense;
      decision.reason = Reason::kNoGain;
    }
    return frame;
  }

  void CountInput(uint64_t nnz) {
    result_.stats.input_nnz += nnz;
    result_.stats.input_elements += elements_;
    result_.decision.sparsity = 1 - static_cast<double>(nnz) / static_cast<double>(elements_);
    result_.density_known = true;
  }

  uint64_t DenseBytes(DType type) const {
    return FrameBytes(Format::kDense, type, elements_, elements_);
  }

  // Final values go on as they came.
  absl::Status PassOn(std::span<const Step> sends, Frame frame) {
    if (use_.keep_frame) args_.held->Put(HeldKind::kFinal, chunk_, frame.Share());
    if (sends.empty()) return absl::OkStatus();
    result_.decision = {.format = static_cast<Format>(HeaderOf(frame).format),
                        .reason = Reason::kForwarded};
    return Post(sends, op_.dtype, std::move(frame));
  }

  absl::Status Post(std::span<const Step> sends, DType type, Frame frame) {
    const Stopwatch stopwatch(&result_.stats.send_ns);
    result_.sent_bytes = frame.size_bytes();
    result_.sent_dense_bytes = DenseBytes(type);
    for (const Step& step : sends) {
      Frame mine = &step == &sends.back() ? std::move(frame) : frame.Share();
      Count(step);
      const transport::Tag tag{.from = RankOf(args_.participant),
                               .to = RankOf(step.to),
                               .lane = args_.lane,
                               .chunk = step.chunk,
                               .phase = step.phase};
      absl::Status status = context_.transport->Send(tag, std::move(mine));
      if (!status.ok()) {
        result_.culprit_rank = static_cast<int>(tag.to);
        return status;
      }
    }
    return absl::OkStatus();
  }

  void Count(const Step& step) {
    OpStats& stats = result_.stats;
    const Decision& decision = result_.decision;
    stats.dense_bytes += result_.sent_dense_bytes;
    stats.wire_bytes += result_.sent_bytes;
    ++stats.sends_by_format[static_cast<size_t>(decision.format)];
    ++stats.decisions[static_cast<size_t>(step.phase)][static_cast<size_t>(decision.reason)];
    ++stats.sends_by_link[static_cast<size_t>(LinkTo(step.to))];
  }

  policy::Link LinkTo(uint32_t peer) const { return context_.LinkBetween(args_.participant, peer); }

  const StepContext& context_;
  const OpDesc& op_;
  StepArgs args_;
  const StepUse& use_;
  const std::span<const Step> run_;
  const DType partial_type_;
  const uint32_t chunk_;
  SliceMemory memory_;
  const uint64_t elements_;
  std::byte *part_room_, *wide_room_, *sum_room_, *output_room_;  // in scratch
  const void* hot_ = nullptr;  // what the first step has stored, as it was left in the caches
  Frame stored_;               // a dense frame of it, if there is one
  StepResult result_;
};

}  // namespace

StepResult RunSteps(const StepContext& context, StepArgs args) {
  return Runner(context, std::move(args)).Run();
}

}  // namespace spccl::runtime
