// The sending half of a run on a GPU.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "collective/runtime/cuda/gpu_run.h"
#include "collective/runtime/cuda/gpu_work.h"
#include "collective/runtime/cuda/names.h"
#include "kernels/host/codec.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using policy::Decision;
using policy::Reason;
using transport::Frame;

void GpuRun::SendLater(std::span<const Step> sends, const void* values, DType type, Frame holder) {
  sends_ = sends;
  values_ = values;
  type_ = type;
  holder_ = std::move(holder);
}

void GpuRun::PassOn(std::span<const Step> sends, Frame frame) {
  host_ = frame.gpu() < 0 ? frame.Share() : std::move(came_);
  if (use_.keep_frame) {
    args_.held->Put(HeldKind::kFinal, chunk_, host_.valid() ? host_.Share() : frame.Share());
  }
  if (sends.empty()) return;
  policy::Link link = policy::Link::kIntra;
  for (const Step& send : sends) link = std::max(link, LinkTo(send.to));
  const auto format = static_cast<Format>(HeaderOf(frame).format);
  result_.decision = args_.policy->PassOn(sends[0].phase, link, format, frame.size_bytes());
  sends_ = sends;
  type_ = op_.dtype;
  frame_ = std::move(frame);
}

uint64_t GpuRun::DenseBytes(DType type) const {
  return FrameBytes(Format::kDense, type, elements_, elements_);
}

// The all-gather of an all-reduce decides by the shard's own sparsity.
bool GpuRun::CountsResult() const {
  return Encodes() && plan::Stores(run_[0].kind) && Combines(run_[0].kind) &&
         op_.kind == OpKind::kAllReduce && args_.policy->compresses() && elements_ > 0;
}

absl::Status GpuRun::Count() {
  if (!counter_.valid()) {
    SPCCL_ASSIGN_OR_RETURN(counter_, gpu_.TakeFrame(sizeof(uint64_t)));
  }
  const cuda::Driver& driver = *gpus_.driver();
  auto* const stream = static_cast<cuda::Stream>(queue_.stream);
  const cuda::DevicePtr count = PointerOf(counter_.data());
  SPCCL_RETURN_IF_ERROR(
      Driver(driver.MemsetD8Async(count, 0, sizeof(uint64_t), stream), "cuMemsetD8Async"));
  SPCCL_RETURN_IF_ERROR(Kernel(codec_.count_nonzeros(&queue_, Code(type_), values_, elements_,
                                                     reinterpret_cast<uint64_t*>(counter_.data())),
                               "count"));
  return Driver(driver.MemcpyAsync(PointerOf(counter_.header()), count, sizeof(uint64_t), stream),
                "cuMemcpyAsync");
}

void GpuRun::NoteResultCounted() {
  uint64_t nnz;
  std::memcpy(&nnz, counter_.header(), sizeof(nnz));
  args_.policy->Counted(nnz, elements_);
  result_.stats.result_nnz += nnz;
  result_.stats.result_elements += elements_;
  busy_ = false;
}

void GpuRun::Decide() {
  policy::Link link = policy::Link::kIntra;
  for (const Step& send : sends_) link = std::max(link, LinkTo(send.to));
  result_.decision = args_.policy->Next(sends_[0].phase, link, elements_);
  counted_ = result_.decision.count_first;
}

void GpuRun::NoteInputCounted() {
  uint64_t nnz;
  std::memcpy(&nnz, counter_.header(), sizeof(nnz));
  result_.decision = args_.policy->Choose(result_.decision, type_, nnz, elements_);
  result_.stats.input_nnz += nnz;
  result_.stats.input_elements += elements_;
  result_.decision.sparsity = 1 - static_cast<double>(nnz) / static_cast<double>(elements_);
  result_.density_known = true;
  busy_ = false;
}

absl::Status GpuRun::Compress() {
  busy_ = true;
  return EnqueueEncode(gpus_, gpu_, args_.lane, result_.decision.format, type_, values_, elements_,
                       &frame_);
}

void GpuRun::NoteCompressed() {
  Decision& decision = result_.decision;
  const uint64_t nnz = HeaderOf(frame_).nnz;
  frame_.set_size_bytes(SizeOfFrame(frame_));
  result_.density_known = true;
  if (!counted_) {
    if (decision.reason == Reason::kFirst) {
      result_.stats.input_nnz += nnz;
      result_.stats.input_elements += elements_;
      decision.sparsity = 1 - static_cast<double>(nnz) / static_cast<double>(elements_);
    }
    args_.policy->Compressed(nnz, elements_);
    args_.policy->Foretell(type_, elements_, &decision);
  }
  counted_ = true;
  if (frame_.size_bytes() >= DenseBytes(type_)) {
    decision.format = Format::kDense;
    decision.reason = Reason::kNoGain;
    decision.forecast = decision.runner_up = std::nullopt;  // they were of the sparse frame
  }
}

absl::Status GpuRun::MakeDense() {
  if (elements_ > 0 && !counted_) {
    result_.density_known = args_.policy->density().has_value();
    args_.policy->SentDense();
  }
  if (holder_.valid()) {
    frame_ = std::move(holder_);
    return absl::OkStatus();
  }
  SPCCL_ASSIGN_OR_RETURN(frame_, NewDense(type_));
  if (elements_ == 0) return absl::OkStatus();
  void* to = ValuesOf(frame_);
  return Kernel(codec_.copy_to_many(&queue_, Code(type_), values_, &to, 1, elements_), "copy");
}

bool GpuRun::GoesByHost(const Step& send) const {
  return LinkTo(send.to) == policy::Link::kInter && !context_.transport->TakesGpuFrames();
}

bool GpuRun::NeedsHostCopy() const {
  return !host_.valid() && std::any_of(sends_.begin(), sends_.end(),
                                       [this](const Step& send) { return GoesByHost(send); });
}

absl::Status GpuRun::CopyToHost() {
  SPCCL_ASSIGN_OR_RETURN(host_, gpu_.TakePinned(frame_.size_bytes()));
  host_.set_size_bytes(frame_.size_bytes());
  return Driver(
      gpus_.driver()->MemcpyAsync(PointerOf(host_.data()), PointerOf(frame_.data()),
                                  frame_.size_bytes(), static_cast<cuda::Stream>(queue_.stream)),
      "cuMemcpyAsync");
}

absl::Status GpuRun::Post() {
  if (sends_.empty()) return absl::OkStatus();
  if (values_ != nullptr && use_.keep_frame && sends_[0].operand == Operand::kOutput) {
    args_.held->Put(HeldKind::kFinal, chunk_, frame_.Share());
  }
  result_.sent_bytes = frame_.size_bytes();
  result_.sent_dense_bytes = DenseBytes(type_);
  for (const Step& step : sends_) {
    Frame mine = GoesByHost(step) ? host_.Share() : frame_.Share();
    result_.CountSend(step.phase, LinkTo(step.to));
    if (LinkTo(step.to) == policy::Link::kInter) {
      const auto index = args_.step + static_cast<size_t>(&step - run_.data());
      mine.Meter(context_.meters[context_.SendPlace(args_.participant, index)]);
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

StepResult GpuRun::TakeResult(absl::Status status) {
  result_.status = std::move(status);
  return std::move(result_);
}

}  // namespace spccl::runtime
