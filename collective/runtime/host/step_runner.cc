#include "collective/runtime/host/step_runner.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "kernels/redop.h"

namespace spccl::runtime {
namespace {

using plan::Step;
using plan::StepKind;
using policy::Decision;
using policy::Reason;
using transport::Frame;

class Runner {
 public:
  Runner(const StepContext& context, StepArgs args)
      : context_(context),
        op_(context.op),
        args_(std::move(args)),
        partial_type_(Reduces(op_.kind) ? AccumulatorOf(op_.dtype, op_.redop) : op_.dtype),
        chunk_(args_.steps[0].chunk),
        elements_(context.layout.SliceElements(chunk_, args_.lane)) {
    const size_t room = args_.scratch.size() / 4 & ~size_t{63};
    SPCCL_CHECK(elements_ * SizeOf(partial_type_) <= room);
    own_room_ = args_.scratch.data();
    sum_room_ = own_room_ + room;
    wide_room_ = sum_room_ + room;
    output_room_ = wide_room_ + room;
  }

  StepResult Run() {
    result_.status = RunFirst(args_.steps[0]);
    if (result_.status.ok() && args_.steps.size() > 1) {
      result_.status = Emit(args_.steps[1], hot_, op_.dtype, Frame());
    }
    return std::move(result_);
  }

 private:
  absl::Status RunFirst(const Step& step) {
    if (Receives(step.kind)) SPCCL_RETURN_IF_ERROR(CheckFrame(step));
    switch (step.kind) {
      case StepKind::kForward:
      case StepKind::kReduceKeep:
        break;  // no plan that a task is made with has these
      case StepKind::kCopy:
        return Copy();
      case StepKind::kSend:
        return Send(step);
      case StepKind::kReduceForward: {
        SPCCL_RETURN_IF_ERROR(Combine(step));
        return Emit(step, sum_, partial_type_, std::move(sum_frame_));
      }
      case StepKind::kReduceStore:
        SPCCL_RETURN_IF_ERROR(Combine(step));
        return StoreSum();
      case StepKind::kStore:
        return Store();
      case StepKind::kStoreForward:
        SPCCL_RETURN_IF_ERROR(Store());
        return Forward(step);
    }
    return absl::InternalError("unknown step");
  }

  const MemoryView& Input() const { return context_.ranks[args_.rank].send; }
  const MemoryView& Output() const { return context_.ranks[args_.rank].recv; }
  uint64_t InputOffset() const {
    return context_.layout.InputOffset(chunk_, args_.lane) * SizeOf(op_.dtype);
  }
  uint64_t OutputOffset() const {
    return context_.layout.OutputOffset(chunk_, args_.lane) * SizeOf(op_.dtype);
  }
  size_t SliceBytes() const { return elements_ * SizeOf(op_.dtype); }

  // An error of this rank's own memory.
  absl::Status OwnFault(const absl::Status& status) {
    if (status.ok()) return status;
    result_.culprit_rank = static_cast<int>(args_.rank);
    return Annotate(status, absl::StrCat("rank ", args_.rank));
  }

  absl::Status ReadInto(const MemoryView& view, uint64_t offset, std::byte* room,
                        const void** data) {
    if (view.mapped()) {
      *data = view.data() + offset;
      return absl::OkStatus();
    }
    *data = room;
    return OwnFault(view.Read(offset, room, SliceBytes()));
  }

  // Where to make the output's slice; FlushOutput() then brings it there if it is remote.
  void* OutputPlace() const {
    return Output().mapped() ? Output().data() + OutputOffset() : output_room_;
  }
  absl::Status FlushOutput(const void* data) {
    if (Output().mapped()) return absl::OkStatus();
    return OwnFault(Output().Write(OutputOffset(), data, SliceBytes()));
  }

  bool InPlace() const {
    if (Input().mapped() != Output().mapped()) return false;
    if (Input().mapped()) return Input().data() + InputOffset() == Output().data() + OutputOffset();
    return Input().pid() == Output().pid() &&
           Input().address() + InputOffset() == Output().address() + OutputOffset();
  }

  DType TypeOnTheWay(const Step& step) const {
    const bool partial = step.phase == Phase::kReduceScatter && step.contributions > 1;
    return partial ? partial_type_ : op_.dtype;
  }

  absl::Status CheckFrame(const Step& step) {
    const FrameFault fault =
        Validate(args_.frame.data(), args_.frame.size_bytes(), TypeOnTheWay(step), elements_);
    if (fault.ok()) return absl::OkStatus();
    result_.culprit_rank = static_cast<int>(step.from);
    return absl::DataLossError(absl::StrCat(
        "rank ", args_.rank, " received a bad frame from rank ", step.from, " (chunk ", chunk_,
        ", slice ", args_.lane, "): ", std::string(NameOf(fault.error)), " at byte ", fault.at,
        ": found ", fault.found, ", expected ", fault.expected));
  }

  const FrameHeader& Header() const {
    return *reinterpret_cast<const FrameHeader*>(args_.frame.data());
  }
  bool FrameIsDense() const { return Header().format == static_cast<uint8_t>(Format::kDense); }
  std::byte* FrameValues() const { return args_.frame.data() + Header().values_offset; }

  absl::Status Copy() {
    SPCCL_RETURN_IF_ERROR(ReadInto(Input(), InputOffset(), own_room_, &hot_));
    if (InPlace()) return absl::OkStatus();
    if (Output().mapped()) {
      void* const output = OutputPlace();
      CopyToMany(hot_, {&output, 1}, SliceBytes(), false);
    }
    return FlushOutput(hot_);
  }

  absl::Status Send(const Step& step) {
    const void* data;
    if (step.phase == Phase::kReduceScatter) {
      SPCCL_RETURN_IF_ERROR(ReadInto(Input(), InputOffset(), own_room_, &data));
    } else {
      SPCCL_RETURN_IF_ERROR(ReadInto(Output(), OutputOffset(), own_room_, &data));
    }
    return Emit(step, data, op_.dtype, Frame());
  }

  // sum_ = what came, combined with this rank's own; in the partial sums' type. Where what came is
  // dense, it is summed up in the frame itself, which sum_frame_ then owns: no copy.
  absl::Status Combine(const Step& step) {
    const void* own;
    SPCCL_RETURN_IF_ERROR(ReadInto(Input(), InputOffset(), own_room_, &own));
    const DType came = TypeOnTheWay(step);
    if (!FrameIsDense() && SparsityPays(op_.dtype, op_.redop)) {
      Widen(op_.dtype, op_.redop, own, sum_room_, elements_);
      ReduceInto(args_.frame.data(), sum_room_, partial_type_);
      sum_ = sum_room_;
      return absl::OkStatus();
    }
    std::byte* values = sum_room_;
    if (FrameIsDense()) {
      values = FrameValues();
    } else {
      // Nothing that this side sends; but the sender chooses the format.
      Decode(args_.frame.data(), values);
    }
    if (came != partial_type_) {
      Widen(op_.dtype, op_.redop, values, wide_room_, elements_);
      values = wide_room_;
    } else if (FrameIsDense()) {
      sum_frame_ = std::move(args_.frame);
    }
    const void* wide_own = own;
    if (op_.dtype != partial_type_) {
      Widen(op_.dtype, op_.redop, own, output_room_, elements_);
      wide_own = output_room_;
    }
    Accumulate(partial_type_, op_.redop, wide_own, values, elements_);
    sum_ = values;
    return absl::OkStatus();
  }

  absl::Status StoreSum() {
    void* const output = OutputPlace();
    Finish(op_.dtype, op_.redop, sum_, output, elements_,
           static_cast<uint32_t>(context_.ranks.size()));
    hot_ = output;
    if (op_.kind == OpKind::kAllReduce && args_.policy->compresses() && elements_ > 0) {
      // The all-gather decides by the shard's own sparsity, and the shard is in the cache.
      const uint64_t nnz = CountNonzeros(op_.dtype, output, elements_);
      args_.policy->Counted(nnz, elements_);
      result_.stats.result_nnz += nnz;
      result_.stats.result_elements += elements_;
    }
    return FlushOutput(output);
  }

  absl::Status Store() {
    if (FrameIsDense() && !Output().mapped()) return FlushOutput(FrameValues());
    void* const output = OutputPlace();
    Decode(args_.frame.data(), output);
    return FlushOutput(output);
  }

  // Sends the slice at `values`, `type` its elements' type. `holder`, if valid, is a dense frame
  // whose values are these.
  absl::Status Emit(const Step& step, const void* values, DType type, Frame holder) {
    Decision decision = args_.policy->Next(step.phase, LinkTo(step.to), elements_);
    const uint64_t dense_bytes = FrameBytes(Format::kDense, type, elements_, elements_);
    Frame frame;
    if (decision.format != Format::kDense) {
      frame = context_.pool->Take(MaxFrameBytes(decision.format, type, elements_) + kEncodeSlack);
      const Encoded encoded = Encode(decision.format, type, values, elements_, frame.data());
      frame.set_size_bytes(encoded.frame_bytes);
      if (decision.reason == Reason::kFirst) {
        result_.stats.input_nnz += encoded.nnz;
        result_.stats.input_elements += elements_;
      }
      args_.policy->Compressed(encoded.nnz, elements_);
      if (encoded.frame_bytes >= dense_bytes) {
        decision.format = Format::kDense;
        decision.reason = Reason::kNoGain;
      }
    } else if (elements_ > 0) {
      args_.policy->SentDense();
    }
    if (decision.format == Format::kDense) {
      if (holder.valid()) {
        frame = std::move(holder);
      } else {
        if (!frame.valid()) frame = context_.pool->Take(dense_bytes + kEncodeSlack);
        frame.set_size_bytes(
            Encode(Format::kDense, type, values, elements_, frame.data()).frame_bytes);
      }
    }
    return Post(step, decision, dense_bytes, std::move(frame));
  }

  absl::Status Forward(const Step& step) {
    const Decision decision{.format = static_cast<Format>(Header().format),
                            .reason = Reason::kForwarded,
                            .link = LinkTo(step.to)};
    const uint64_t dense_bytes = FrameBytes(Format::kDense, op_.dtype, elements_, elements_);
    return Post(step, decision, dense_bytes, std::move(args_.frame));
  }

  absl::Status Post(const Step& step, const Decision& decision, uint64_t dense_bytes, Frame frame) {
    OpStats& stats = result_.stats;
    stats.dense_bytes += dense_bytes;
    stats.wire_bytes += frame.size_bytes();
    ++stats.sends_by_format[static_cast<size_t>(decision.format)];
    ++stats.decisions[static_cast<size_t>(step.phase)][static_cast<size_t>(decision.reason)];
    ++stats.sends_by_link[static_cast<size_t>(decision.link)];
    const transport::Tag tag{.from = args_.rank,
                             .to = step.to,
                             .lane = args_.lane,
                             .chunk = step.chunk,
                             .phase = step.phase};
    absl::Status status = context_.transport->Send(tag, std::move(frame));
    if (!status.ok()) result_.culprit_rank = static_cast<int>(step.to);
    return status;
  }

  policy::Link LinkTo(uint32_t peer) const {
    const std::vector<uint32_t>& nodes = context_.node_of_rank;
    const bool same = nodes.empty() || nodes[args_.rank] == nodes[peer];
    return same ? policy::Link::kIntra : policy::Link::kInter;
  }

  const StepContext& context_;
  const OpDesc& op_;
  StepArgs args_;
  const DType partial_type_;
  const uint32_t chunk_;
  const uint64_t elements_;
  std::byte *own_room_, *sum_room_, *wide_room_, *output_room_;  // in scratch
  const void* sum_ = nullptr;
  Frame sum_frame_;
  const void* hot_ = nullptr;  // the output's slice, as the first of two steps left it
  StepResult result_;
};

}  // namespace

StepResult RunSteps(const StepContext& context, StepArgs args) {
  return Runner(context, std::move(args)).Run();
}

}  // namespace spccl::runtime
