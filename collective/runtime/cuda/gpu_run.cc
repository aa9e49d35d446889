#include "collective/runtime/cuda/gpu_run.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/runtime/cuda/gpu_work.h"
#include "collective/runtime/cuda/names.h"
#include "kernels/host/codec.h"
#include "kernels/host/frame_header.h"
#include "kernels/layout.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using plan::StepKind;
using transport::Frame;

namespace {

// A sum that is divided at the end is a sum until then.
RedOp UndividedOp(RedOp op) {
  return op == RedOp::kAvg ? RedOp::kSum : op;
}

}  // namespace

Detached RunOnGpu(Gpus& gpus, Gpu& gpu, const StepContext& context, StepArgs args,
                  std::function<void(StepResult)> ended) {
  co_await ThreadOf(gpu);
  StepResult result;
  {
    GpuRun run(gpus, gpu, context, std::move(args));
    absl::Status status = gpu.status();
    if (status.ok() && run.MustValidate()) {
      status = run.Validate();
      const absl::Status end = co_await EndOf(gpu, run.stream());
      status.Update(end);
      if (status.ok()) status = run.CheckValidated();
    }
    if (status.ok()) status = run.Work();
    if (status.ok() && run.CountsResult()) {
      status = run.Count();
      const absl::Status end = co_await EndOf(gpu, run.stream());
      status.Update(end);
      if (status.ok()) run.NoteResultCounted();
    }
    if (status.ok() && run.Encodes()) {
      run.Decide();
      if (run.CountsInput()) {
        status = run.Count();
        const absl::Status end = co_await EndOf(gpu, run.stream());
        status.Update(end);
        if (status.ok()) run.NoteInputCounted();
      }
      if (status.ok() && run.Compresses()) {
        status = run.Compress();
        const absl::Status end = co_await EndOf(gpu, run.stream());
        status.Update(end);
        run.SetEnded();
        if (status.ok()) run.NoteCompressed();
      }
      if (status.ok() && !run.Compresses()) status = run.MakeDense();
    }
    if (status.ok() && run.NeedsHostCopy()) status = run.CopyToHost();
    if (run.is_busy()) {
      const absl::Status end = co_await EndOf(gpu, run.stream());
      status.Update(end);
    }
    if (status.ok()) status = run.Post();
    result = run.TakeResult(std::move(status));
  }
  ended(std::move(result));
}

GpuRun::GpuRun(Gpus& gpus, Gpu& gpu, const StepContext& context, StepArgs args)
    : gpus_(gpus),
      gpu_(gpu),
      codec_(gpus.codec()),
      context_(context),
      op_(context.op),
      args_(std::move(args)),
      use_(context.plan->uses[args_.participant][args_.step]),
      run_(context.plan->RunAt(args_.participant, args_.step)),
      partial_type_(context.partial_type()),
      chunk_(run_[0].chunk),
      queue_(gpu.QueueOf(args_.lane)),
      slice_(gpus, gpu, context, args_.participant, chunk_, args_.lane),
      elements_(slice_.elements()) {}

absl::Status GpuRun::Kernel(int error, std::string_view what) {
  busy_ = true;
  return KernelStatus(gpus_, gpu_, error, what);
}

absl::Status GpuRun::Driver(cuda::Result result, std::string_view what) {
  busy_ = true;
  return gpus_.driver()->ToStatus(result, what);
}

bool GpuRun::IsDense(const Frame& frame) {
  return static_cast<Format>(HeaderOf(frame).format) == Format::kDense;
}

absl::Status GpuRun::Work() {
  const Step& step = run_[0];
  if (Receives(step.kind)) SPCCL_RETURN_IF_ERROR(CheckFrame(step));
  if (args_.frame.valid() && args_.frame.gpu() < 0 && step.kind != StepKind::kForward) {
    SPCCL_RETURN_IF_ERROR(Upload());
  }
  switch (step.kind) {
    case StepKind::kCopy:
      return Copy();
    case StepKind::kSend:
      return Send(step);
    case StepKind::kForward:
      PassOn(run_, std::move(args_.frame));
      return absl::OkStatus();
    case StepKind::kReduceForward:
    case StepKind::kReduceKeep: {
      Frame sum;
      SPCCL_RETURN_IF_ERROR(Combine(step, &sum));
      const bool keeps = step.kind == StepKind::kReduceKeep;
      if (keeps && use_.keep_partial) args_.held->Put(HeldKind::kPartial, chunk_, sum.Share());
      const void* const values = ValuesOf(sum);
      SendLater(run_.subspan(keeps ? 1 : 0), values, partial_type_, std::move(sum));
      return absl::OkStatus();
    }
    case StepKind::kReduceStore:
      return ReduceStore(step);
    case StepKind::kStore:
    case StepKind::kStoreForward:
      SPCCL_RETURN_IF_ERROR(Store(args_.frame));
      PassOn(run_.subspan(step.kind == StepKind::kStore ? 1 : 0), std::move(args_.frame));
      return absl::OkStatus();
  }
  return absl::InternalError("unknown step");
}

DType GpuRun::TypeOnTheWay(const Step& step) const {
  const bool partial = step.phase == Phase::kReduceScatter && step.contributions > 1;
  return partial ? partial_type_ : op_.dtype;
}

absl::Status GpuRun::BadFrame(const Step& step, std::string_view reason) {
  result_.culprit_rank = static_cast<int>(RankOf(step.from));
  return absl::DataLossError(absl::StrCat(
      "rank ", RankOf(args_.participant), " received a bad frame from rank ", RankOf(step.from),
      " (chunk ", chunk_, ", slice ", args_.lane, "): ", std::string(reason)));
}

absl::Status GpuRun::CheckHostFrame(const Step& step) {
  const Frame& frame = args_.frame;
  const FrameFault fault =
      spccl::Validate(frame.data(), frame.size_bytes(), TypeOnTheWay(step), elements_);
  const auto format = static_cast<Format>(HeaderOf(frame).format);
  if (fault.ok() && !IsLossy(format)) return absl::OkStatus();
  return BadFrame(step, fault.ok()
                            ? absl::StrCat("GPUs have no kernels for ", std::string(NameOf(format)))
                            : absl::StrCat(std::string(NameOf(fault.error)), " at byte ", fault.at,
                                           ": found ", fault.found, ", expected ",
                                           std::string(NameOf(fault.bound)), fault.expected));
}

absl::Status GpuRun::Upload() {
  came_ = std::move(args_.frame);
  const size_t bytes = came_.size_bytes();
  SPCCL_ASSIGN_OR_RETURN(args_.frame, gpu_.TakeFrame(bytes));
  SPCCL_ASSIGN_OR_RETURN(Frame pinned, gpu_.TakePinned(bytes));
  // A copy from memory that is not pinned would hold up this thread until the GPU has made it.
  std::memcpy(pinned.data(), came_.data(), bytes);
  std::memcpy(args_.frame.header(), came_.data(), sizeof(FrameHeader));
  args_.frame.set_size_bytes(bytes);
  in_use_.push_back(args_.frame.Share());
  in_use_.push_back(pinned.Share());
  return Driver(gpus_.driver()->MemcpyAsync(PointerOf(args_.frame.data()), PointerOf(pinned.data()),
                                            bytes, static_cast<cuda::Stream>(queue_.stream)),
                "cuMemcpyAsync");
}

// Of a frame in this GPU's memory the host has the header, of which every field follows from four.
absl::Status GpuRun::CheckFrame(const Step& step) {
  const Frame& frame = args_.frame;
  if (frame.gpu() < 0) return CheckHostFrame(step);
  if (frame.gpu() != gpu_.index()) return BadFrame(step, "it is in another GPU's memory");
  if (frame.size_bytes() < sizeof(FrameHeader)) return BadFrame(step, "it has no header");
  const FrameHeader& header = HeaderOf(frame);
  const auto format = static_cast<Format>(header.format);
  const DType type = TypeOnTheWay(step);
  const bool fits = IsValidFormat(header.format) && !IsLossy(format) &&
                    header.dtype == Code(type) && header.element_count == elements_ &&
                    header.nnz <= elements_ &&
                    (format != Format::kDense || header.nnz == elements_);
  if (!fits) return BadFrame(step, "its header is not what this step receives");
  uint8_t expected[sizeof(FrameHeader)];
  const FrameLayout layout = LayoutOf(format, type, elements_, header.nnz);
  host::WriteHeader(format, type, elements_, header.nnz, layout, expected);
  if (std::memcmp(expected, &header, sizeof(header)) != 0 || frame.size_bytes() != layout.total) {
    return BadFrame(step, "its header contradicts itself");
  }
  return absl::OkStatus();
}

bool GpuRun::MustValidate() const {
  return args_.frame.valid() && args_.frame.gpu() >= 0 && elements_ > 0 &&
         LinkTo(run_[0].from) == policy::Link::kInter;
}

absl::Status GpuRun::Validate() {
  SPCCL_RETURN_IF_ERROR(CheckFrame(run_[0]));
  SPCCL_ASSIGN_OR_RETURN(counter_, gpu_.TakeFrame(sizeof(uint64_t)));
  const cuda::Driver& driver = *gpus_.driver();
  auto* const stream = static_cast<cuda::Stream>(queue_.stream);
  const cuda::DevicePtr faults = PointerOf(counter_.data());
  SPCCL_RETURN_IF_ERROR(
      Driver(driver.MemsetD8Async(faults, 0, sizeof(uint64_t), stream), "cuMemsetD8Async"));
  const device::DeviceFrame info = InfoOf(args_.frame);
  SPCCL_RETURN_IF_ERROR(
      Kernel(codec_.validate_body(&queue_, &info, reinterpret_cast<uint32_t*>(counter_.data())),
             "validate"));
  return Driver(driver.MemcpyAsync(PointerOf(counter_.header()), faults, sizeof(uint64_t), stream),
                "cuMemcpyAsync");
}

absl::Status GpuRun::CheckValidated() {
  busy_ = false;
  uint64_t faults;
  std::memcpy(&faults, counter_.header(), sizeof(faults));
  if (faults == 0) return absl::OkStatus();
  return BadFrame(run_[0], "its body is not what its header says");
}

absl::StatusOr<Frame> GpuRun::NewDense(DType type) {
  SPCCL_ASSIGN_OR_RETURN(Frame frame, gpu_.TakeFrame(DenseBytes(type) + kEncodeSlack));
  frame.set_size_bytes(WrapDense(type, elements_, frame.header()));
  SPCCL_RETURN_IF_ERROR(Driver(
      gpus_.driver()->MemcpyAsync(PointerOf(frame.data()), PointerOf(frame.header()),
                                  sizeof(FrameHeader), static_cast<cuda::Stream>(queue_.stream)),
      "cuMemcpyAsync"));
  in_use_.push_back(frame.Share());
  return frame;
}

absl::Status GpuRun::Copy() {
  SPCCL_ASSIGN_OR_RETURN(const auto inputs, slice_.Inputs());
  SPCCL_ASSIGN_OR_RETURN(const auto outputs, slice_.Outputs());
  if (elements_ > 0 && Reduces(op_.kind)) {
    // The only participant: its input is the result.
    SPCCL_RETURN_IF_ERROR(
        Kernel(codec_.reduce(&queue_, Code(op_.dtype), Code(op_.redop), inputs.data(),
                             static_cast<uint32_t>(inputs.size()), outputs.data(),
                             static_cast<uint32_t>(outputs.size()), elements_),
               "reduce"));
  } else {
    SPCCL_RETURN_IF_ERROR(WriteToOutputs(inputs[0]));
  }
  SPCCL_RETURN_IF_ERROR(slice_.Spread());
  SendLater(run_.subspan(1), outputs[0], op_.dtype, Frame());
  return absl::OkStatus();
}

absl::Status GpuRun::WriteToOutputs(const void* values) {
  SPCCL_ASSIGN_OR_RETURN(const auto outputs, slice_.Outputs());
  if (elements_ == 0) return absl::OkStatus();
  return Kernel(codec_.copy_to_many(&queue_, Code(op_.dtype), values, outputs.data(),
                                    static_cast<uint32_t>(outputs.size()), elements_),
                "copy");
}

absl::Status GpuRun::Store(const Frame& frame) {
  in_use_.push_back(frame.Share());
  if (elements_ == 0) return absl::OkStatus();
  if (IsDense(frame)) {
    SPCCL_RETURN_IF_ERROR(WriteToOutputs(ValuesOf(frame)));
    return slice_.Spread();
  }
  SPCCL_ASSIGN_OR_RETURN(const auto outputs, slice_.Outputs());
  const device::DeviceFrame info = InfoOf(frame);
  for (void* const output : outputs) {
    SPCCL_RETURN_IF_ERROR(Kernel(codec_.decode(&queue_, &info, output), "decode"));
  }
  return slice_.Spread();
}

absl::Status GpuRun::Send(const Step& step) {
  if (step.operand == Operand::kOutput) {
    if (Frame* const held = args_.held->Find(HeldKind::kFinal, chunk_)) {
      PassOn(run_, held->Share());
      return absl::OkStatus();
    }
    SPCCL_ASSIGN_OR_RETURN(const void* const written, slice_.WrittenOutput());
    SendLater(run_, written, op_.dtype, Frame());
    return absl::OkStatus();
  }
  Source source;
  SPCCL_RETURN_IF_ERROR(ReadOperand(step, &source));
  Frame holder = std::move(source.spare);
  if (!holder.valid()) {
    const HeldKind kind = step.operand == Operand::kPartial ? HeldKind::kPartial : HeldKind::kInput;
    if (const Frame* const held = args_.held->Find(kind, chunk_)) holder = held->Share();
  }
  SendLater(run_, source.data, source.type, std::move(holder));
  return absl::OkStatus();
}

GpuRun::Source GpuRun::UseHeld(HeldKind kind, Frame* held, DType type, bool keep) {
  Source source{.data = ValuesOf(*held), .type = type};
  in_use_.push_back(held->Share());
  if (keep) return source;
  source.spare = std::move(*held);
  args_.held->Drop(kind, chunk_);
  return source;
}

absl::Status GpuRun::ReadInput(Source* source) {
  source->type = slice_.InputType();
  if (Frame* const held = args_.held->Find(HeldKind::kInput, chunk_)) {
    *source = UseHeld(HeldKind::kInput, held, source->type, use_.keep_input);
    return absl::OkStatus();
  }
  SPCCL_ASSIGN_OR_RETURN(const auto inputs, slice_.Inputs());
  if (slice_.one_input()) {
    source->data = inputs[0];
    return absl::OkStatus();
  }
  // Into a frame: so a dense send needs no copy, and a reduction may be made in it.
  SPCCL_ASSIGN_OR_RETURN(Frame frame, NewDense(partial_type_));
  void* const sum = ValuesOf(frame);
  if (elements_ > 0 && partial_type_ == op_.dtype) {
    SPCCL_RETURN_IF_ERROR(
        Kernel(codec_.reduce(&queue_, Code(op_.dtype), Code(UndividedOp(op_.redop)), inputs.data(),
                             static_cast<uint32_t>(inputs.size()), &sum, 1, elements_),
               "reduce"));
  } else if (elements_ > 0) {
    SPCCL_ASSIGN_OR_RETURN(const Frame room, NewDense(partial_type_));
    for (size_t i = 0; i < inputs.size(); ++i) {
      SPCCL_RETURN_IF_ERROR(WidenTo(inputs[i], op_.dtype, i == 0 ? sum : ValuesOf(room)));
      if (i == 0) continue;
      SPCCL_RETURN_IF_ERROR(Kernel(codec_.accumulate(&queue_, Code(partial_type_), Code(op_.redop),
                                                     ValuesOf(room), sum, elements_),
                                   "accumulate"));
    }
  }
  source->data = sum;
  if (use_.keep_input) {
    args_.held->Put(HeldKind::kInput, chunk_, std::move(frame));
  } else {
    source->spare = std::move(frame);
  }
  return absl::OkStatus();
}

absl::Status GpuRun::ReadOperand(const Step& step, Source* source) {
  if (step.operand != Operand::kPartial) return ReadInput(source);
  Frame* const held = args_.held->Find(HeldKind::kPartial, chunk_);
  SPCCL_CHECK(held != nullptr);  // the plan was checked
  // What this step keeps takes the place of what it reads.
  const bool keep = use_.keep_partial && step.kind != StepKind::kReduceKeep;
  *source = UseHeld(HeldKind::kPartial, held, partial_type_, keep);
  return absl::OkStatus();
}

}  // namespace spccl::runtime
