#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "collective/policy/lossy.h"
#include "collective/policy/wire_format.h"
#include "collective/runtime/host/step_run.h"
#include "kernels/host/codec.h"
#include "kernels/lossy_layout.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using plan::StepKind;
using transport::Frame;

bool StepRun::SendsLossily(const Step& send) const {
  // Where several participants make the final values, each has its own copy of them, and what one
  // of them sends on must not differ from the others' (docs/lossy.md).
  const bool final_values = send.phase == Phase::kAllGather;
  return elements_ != 0 && policy::AppliesTo(context_.lossy, op_, send.phase) &&
         (!final_values || context_.plan->one_maker);
}

// How large a frame within a bound becomes, only making it tells. Zeros make an exact one smaller
// than any such: so nonzeros are counted first, as for exact sends.
Frame StepRun::EncodedLossily(const Step& send, const void* values, DType type, bool* counted) {
  if (context_.lossy.format != Format::kErrorBound) {
    return QsgdPays(values, type) ? LossyFrame(values, type) : Frame();
  }
  const bool open = result_.decision.count_first;
  Choice exact{.policy = *args_.policy, .decision = result_.decision};
  if (open) exact = ChosenByNonzeros(values, type);
  uint64_t exact_bytes = DenseBytes(type);
  if (exact.decision.format != Format::kDense) {
    if (!open) exact.nnz = CountNonzeros(type, values, elements_);
    exact_bytes =
        std::min(exact_bytes, FrameBytes(exact.decision.format, type, elements_, exact.nnz));
  }
  if (ErrorBoundLayoutOf(SizeOf(type), elements_, 0, 0).total < exact_bytes) {
    Frame frame = LossyFrame(values, type);
    if (frame.size_bytes() < exact_bytes) {
      // Where no density is known the format is sparse, or open: it was counted above. Partial sums
      // are no inputs; what all-gather and broadcast send are, though they lie in the output by
      // then.
      const bool is_input =
          send.kind == StepKind::kSend && (send.operand == Operand::kInput || !Reduces(op_.kind));
      if (is_input && result_.decision.reason == policy::Reason::kFirst) CountInput(exact.nnz);
      return frame;
    }
  }
  if (open) Take(exact);
  *counted = open;
  return Frame();
}

Frame StepRun::LossyFrame(const void* values, DType type) {
  const policy::Lossy& lossy = context_.lossy;
  Frame frame = context_.pool->Take(MaxFrameBytes(lossy.format, type, elements_) + kEncodeSlack);
  CodecWork& work = result_.stats.encoded[static_cast<size_t>(lossy.format)];
  const Stopwatch stopwatch(&work.ns);
  work.dense_bytes += elements_ * SizeOf(type);
  const std::optional<spccl::Encoded> encoded =
      lossy.format == Format::kErrorBound
          ? EncodeErrorBound(type, values, elements_, lossy.bound, frame.data())
          : EncodeQsgd(
                lossy.format, type, values, elements_,
                {.seed = lossy.seed, .first = context_.layout.OutputOffset(chunk_, args_.lane)},
                frame.data());
  if (!encoded.has_value()) return Frame();
  frame.set_size_bytes(encoded->frame_bytes);
  return frame;
}

// Asked of the elements, as far as that goes: neither of the slice's length nor of what links and
// kernels cost, which may be others when the program runs again, and must not change its results.
bool StepRun::QsgdPays(const void* values, DType type) const {
  const Format format = context_.lossy.format;
  const uint64_t longest = context_.layout.SliceElements(chunk_, 0);
  if (MaxFrameBytes(format, type, longest) >= FrameBytes(Format::kDense, type, longest, longest)) {
    return false;
  }
  // A few elements at the end of a part have any density, by chance, and are of a longer slice
  // where slices are larger.
  const bool rest = args_.lane > 0 && elements_ < kBucketElements;
  if (rest || !args_.policy->compresses()) return true;
  const auto nnz = static_cast<double>(CountNonzeros(type, values, elements_));
  const double density = nnz / static_cast<double>(elements_);
  return policy::BytesPerElement(format, static_cast<double>(SizeOf(type)), density) <
         args_.policy->LeastBytes(result_.decision.phase, result_.decision.link, density);
}

absl::Status StepRun::TakeAsSent(const Step& send, const Frame& frame, DType type) {
  switch (send.kind == StepKind::kSend ? send.operand : Operand::kInput) {
    case Operand::kOutput:
      return Store(frame);
    case Operand::kPartial:
      if (use_.keep_partial) HoldDecoded(HeldKind::kPartial, frame, type);
      return absl::OkStatus();
    case Operand::kInput:
      // What kReduceForward sends, nobody here reads again.
      if (send.kind == StepKind::kSend && use_.keep_input) {
        HoldDecoded(HeldKind::kInput, frame, type);
      }
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void StepRun::HoldDecoded(HeldKind kind, const Frame& frame, DType type) {
  const Stopwatch stopwatch(&result_.stats.reduce_ns, &reduce_, TakingIn(frame));
  Frame dense = NewDenseFrame(type);
  Decode(frame.data(), ValuesOf(dense), Stores::kCached);
  args_.held->Put(kind, chunk_, std::move(dense));
}

}  // namespace spccl::runtime
