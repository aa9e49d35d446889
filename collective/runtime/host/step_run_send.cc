#include "collective/runtime/host/step_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using plan::StepKind;
using policy::Decision;
using policy::Reason;
using transport::Frame;

absl::Status StepRun::Send(const Step& step) {
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
    const HeldKind kind = step.operand == Operand::kPartial ? HeldKind::kPartial : HeldKind::kInput;
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

DType StepRun::SentType(const Step& step) const {
  return step.kind == StepKind::kReduceForward ? partial_type_ : TypeOnTheWay(step);
}

absl::Status StepRun::Emit(std::span<const Step> sends, const void* values, DType type,
                           Frame holder) {
  if (sends.empty()) return absl::OkStatus();
  SPCCL_CHECK(type == SentType(sends[0]));
  Frame frame;
  {
    const Stopwatch stopwatch(&result_.stats.encode_ns, &encode_);
    policy::Link link = policy::Link::kIntra;
    for (const Step& send : sends) link = std::max(link, LinkTo(send.to));
    result_.decision = args_.policy->Next(sends[0].phase, link, elements_);
    bool counted = false;
    if (SendsLossily(sends[0])) frame = EncodedLossily(sends[0], values, type, &counted);
    if (frame.valid()) {
      result_.decision = {.format = FormatOf(frame),
                          .reason = Reason::kLossy,
                          .link = link,
                          .sparsity = result_.decision.sparsity};
    } else {
      frame = Encoded(values, type, std::move(holder), counted);
    }
  }
  if (IsLossy(FormatOf(frame))) SPCCL_RETURN_IF_ERROR(TakeAsSent(sends[0], frame, type));
  if (use_.keep_frame && sends[0].operand == Operand::kOutput) {
    args_.held->Put(HeldKind::kFinal, chunk_, frame.Share());
  }
  return Post(sends, type, std::move(frame));
}

Frame StepRun::Encoded(const void* values, DType type, Frame holder, bool counted) {
  Decision& decision = result_.decision;
  if (decision.count_first) {
    const Choice choice = ChosenByNonzeros(values, type);
    counted = !choice.encoding_counts;
    if (counted) {
      Take(choice);
    } else {
      decision = choice.decision;
    }
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
  EncodeInto(Format::kDense, values, type, &frame);
  return frame;
}

StepRun::Choice StepRun::ChosenByNonzeros(const void* values, DType type) const {
  const auto choose = [&](uint64_t nnz) {
    Choice choice{.policy = *args_.policy, .decision = {}, .nnz = nnz};
    choice.decision = choice.policy.Choose(result_.decision, type, nnz, elements_);
    return choice;
  };
  if (result_.decision.usual != policy::Leaning::kNone) {
    Choice guess = choose(EstimateNonzeros(type, values, elements_));
    guess.encoding_counts = guess.decision.format != Format::kDense;
    const bool usual =
        guess.encoding_counts == (result_.decision.usual == policy::Leaning::kSparse);
    if (usual) return guess;
  }
  return choose(CountNonzeros(type, values, elements_));
}

void StepRun::Take(const Choice& choice) {
  *args_.policy = choice.policy;
  result_.decision = choice.decision;
  CountInput(choice.nnz);
}

uint64_t StepRun::EncodeInto(Format format, const void* values, DType type, Frame* frame) {
  CodecWork& work = result_.stats.encoded[static_cast<size_t>(format)];
  const Stopwatch stopwatch(&work.ns);
  work.dense_bytes += elements_ * SizeOf(type);
  const auto encoded = Encode(format, type, values, elements_, frame->data());
  frame->set_size_bytes(encoded.frame_bytes);
  return encoded.nnz;
}

Frame StepRun::Compressed(const void* values, DType type, bool counted) {
  Decision& decision = result_.decision;
  Frame frame = context_.pool->Take(MaxFrameBytes(decision.format, type, elements_) + kEncodeSlack);
  const uint64_t nnz = EncodeInto(decision.format, values, type, &frame);
  result_.density_known = true;
  if (!counted) {
    if (decision.reason == Reason::kFirst) CountInput(nnz);
    args_.policy->Compressed(nnz, elements_);
    args_.policy->Foretell(type, elements_, &decision);
  }
  if (frame.size_bytes() >= DenseBytes(type)) {
    decision.format = Format::kDense;
    decision.reason = Reason::kNoGain;
    decision.forecast = decision.runner_up = std::nullopt;  // they were of the sparse frame
  }
  return frame;
}

void StepRun::CountInput(uint64_t nnz) {
  result_.stats.input_nnz += nnz;
  result_.stats.input_elements += elements_;
  result_.decision.sparsity = 1 - static_cast<double>(nnz) / static_cast<double>(elements_);
  result_.density_known = true;
}

uint64_t StepRun::DenseBytes(DType type) const {
  return FrameBytes(Format::kDense, type, elements_, elements_);
}

absl::Status StepRun::PassOn(std::span<const Step> sends, Frame frame) {
  if (use_.keep_frame) args_.held->Put(HeldKind::kFinal, chunk_, frame.Share());
  if (sends.empty()) return absl::OkStatus();
  policy::Link link = policy::Link::kIntra;
  for (const Step& send : sends) link = std::max(link, LinkTo(send.to));
  result_.decision =
      args_.policy->PassOn(sends[0].phase, link, FormatOf(frame), frame.size_bytes());
  return Post(sends, op_.dtype, std::move(frame));
}

absl::Status StepRun::Post(std::span<const Step> sends, DType type, Frame frame) {
  const Stopwatch stopwatch(&result_.stats.send_ns, &send_);
  result_.sent_bytes = frame.size_bytes();
  result_.sent_dense_bytes = DenseBytes(type);
  NoteFrame(frame, &sent_);
  for (const Step& step : sends) {
    // NOLINTNEXTLINE(bugprone-use-after-move): the last round alone moves.
    Frame mine = &step == &sends.back() ? std::move(frame) : frame.Share();
    result_.CountSend(step.phase, LinkTo(step.to));
    sent_.peer = RankOf(step.to);
    sent_.link = std::max(sent_.link, LinkTo(step.to));
    if (LinkTo(step.to) == policy::Link::kInter) {
      mine.Meter(context_.meters[context_.SendPlace(args_.participant, StepIndex(step))]);
    }
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

}  // namespace spccl::runtime
