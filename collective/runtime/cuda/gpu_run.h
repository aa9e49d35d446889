// Carries out steps of a plan for one slice, on GPUs: as collective/runtime/host/step_run.h, but
// that everything is enqueued, and known when it has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "collective/runtime/cuda/coroutine.h"
#include "collective/runtime/cuda/gpu_slice.h"
#include "collective/runtime/cuda/gpus.h"
#include "collective/runtime/host/step_runner.h"
#include "kernels/format.h"

namespace spccl::runtime {

// Runs on `gpu`, and calls `ended` on its issuing thread.
Detached RunOnGpu(Gpus& gpus, Gpu& gpu, const StepContext& context, StepArgs args,
                  std::function<void(StepResult)> ended);

// One run of steps on one slice: what RunOnGpu awaits between these calls. The issuing thread's.
//
// gpu_run.cc: receiving, reading, storing; gpu_run_reduce.cc: reductions; gpu_run_send.cc: sending.
class GpuRun {
 public:
  GpuRun(Gpus& gpus, Gpu& gpu, const StepContext& context, StepArgs args);
  GpuRun(const GpuRun&) = delete;
  GpuRun& operator=(const GpuRun&) = delete;

  void* stream() const { return queue_.stream; }
  // Something may have been enqueued since SetEnded.
  bool is_busy() const { return busy_ || slice_.has_copied(); }
  void SetEnded() { busy_ = false; }

  // A frame that another node's GPU has sent: its body is validated here, before it is read.
  bool MustValidate() const;
  absl::Status Validate();
  absl::Status CheckValidated();

  // Everything but sending.
  absl::Status Work();

  // Then, if there is something to encode: what must be counted first, the decision, what must be
  // counted for it, the frame. After each that enqueues, its end is awaited; then the next is asked
  // for.
  bool CountsResult() const;
  void NoteResultCounted();
  // Not by values_: of no elements they may be nowhere.
  bool Encodes() const { return !sends_.empty() && !frame_.valid(); }
  void Decide();
  bool CountsInput() const { return result_.decision.count_first; }
  void NoteInputCounted();
  absl::Status Count();
  bool Compresses() const { return result_.decision.format != Format::kDense; }
  absl::Status Compress();
  void NoteCompressed();
  absl::Status MakeDense();

  // Between nodes frames go as the host's, unless the transport takes them from a GPU: copied, as
  // large as they are, when they have been made.
  bool NeedsHostCopy() const;
  absl::Status CopyToHost();

  // When everything has ended.
  absl::Status Post();
  StepResult TakeResult(absl::Status status);

 private:
  using Frame = transport::Frame;
  // A slice to read, its type, and the held frame that it is in, if that is not needed after this
  // run.
  struct Source {
    const void* data = nullptr;
    DType type = DType::kFloat32;
    Frame spare = {};
  };

  uint32_t RankOf(uint32_t participant) const { return context_.plan->first_rank[participant]; }
  policy::Link LinkTo(uint32_t peer) const { return context_.LinkBetween(args_.participant, peer); }
  absl::Status Kernel(int error, std::string_view what);
  absl::Status Driver(cuda::Result result, std::string_view what);
  static bool IsDense(const Frame& frame);
  static std::byte* ValuesOf(const Frame& frame) { return frame.data() + sizeof(FrameHeader); }
  DType TypeOnTheWay(const plan::Step& step) const;
  absl::Status CheckFrame(const plan::Step& step);
  absl::Status CheckHostFrame(const plan::Step& step);
  absl::Status BadFrame(const plan::Step& step, std::string_view reason);
  // What came from another node, to this GPU's memory.
  absl::Status Upload();
  bool GoesByHost(const plan::Step& send) const;
  absl::StatusOr<Frame> NewDense(DType type);

  absl::Status Copy();
  absl::Status Send(const plan::Step& step);
  absl::Status Store(const Frame& frame);
  absl::Status ReadInput(Source* source);
  absl::Status ReadOperand(const plan::Step& step, Source* source);
  Source UseHeld(HeldKind kind, Frame* held, DType type, bool keep);
  absl::Status WidenTo(const void* from, DType type, void* to);
  // *sum = what came, combined with the operand.
  absl::Status Combine(const plan::Step& step, Frame* sum);
  absl::Status CombineSparse(Source own, Frame* sum);
  absl::Status CombineDense(const plan::Step& step, const Source& own, Frame* sum);
  absl::Status ReduceStore(const plan::Step& step);
  absl::Status WriteToOutputs(const void* values);

  // What is to be sent: `values`, of `type`; `holder`, if valid, is a dense frame with them.
  void SendLater(std::span<const plan::Step> sends, const void* values, DType type, Frame holder);
  void PassOn(std::span<const plan::Step> sends, Frame frame);
  uint64_t DenseBytes(DType type) const;

  Gpus& gpus_;
  Gpu& gpu_;
  const device::CodecTable& codec_;
  const StepContext& context_;
  const OpDesc& op_;
  StepArgs args_;
  const StepUse& use_;
  const std::span<const plan::Step> run_;
  const DType partial_type_;
  const uint32_t chunk_;
  const device::Queue queue_;
  GpuSlice slice_;
  const uint64_t elements_;
  // A share of every frame that the stream's work may still touch, however the run ends.
  std::vector<Frame> in_use_;
  bool busy_ = false;

  std::span<const plan::Step> sends_;
  const void* values_ = nullptr;
  DType type_ = DType::kFloat32;
  Frame holder_;
  Frame frame_;    // what is sent; if it came from another node and is only passed on, the host's
  Frame host_;     // the same in the host's memory, if it came so, or is to leave so
  Frame came_;     // what has been uploaded, as it came
  Frame counter_;  // a count, in the GPU's memory, and in its header the host's copy
  bool counted_ = false;
  StepResult result_;
};

}  // namespace spccl::runtime
