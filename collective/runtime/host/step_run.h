// What is behind RunSteps: internal to step_run*.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "collective/runtime/host/slice_memory.h"
#include "collective/runtime/host/step_runner.h"
#include "collective/runtime/span_ring.h"
#include "kernels/format.h"

namespace spccl::runtime {

// From the first begin to the last end of a run's work of one kind.
struct WorkTime {
  int64_t begin_ns = 0, end_ns = 0;  // 0: there was none
};

// Adds the time of its life to a count, and to a run's work and a codec's where they are given.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* sum_ns, WorkTime* work = nullptr, CodecWork* codec = nullptr)
      : sum_ns_(sum_ns), work_(work), codec_(codec), begin_ns_(MonotonicNanos()) {}
  ~Stopwatch() {
    const int64_t end_ns = MonotonicNanos();
    const auto ns = static_cast<uint64_t>(end_ns - begin_ns_);
    *sum_ns_ += ns;
    if (codec_ != nullptr) codec_->ns += ns;
    if (work_ == nullptr) return;
    if (work_->begin_ns == 0) work_->begin_ns = begin_ns_;
    work_->end_ns = end_ns;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  uint64_t* const sum_ns_;
  WorkTime* const work_;
  CodecWork* const codec_;
  const int64_t begin_ns_;
};

inline Format FormatOf(const transport::Frame& frame) {
  return static_cast<Format>(reinterpret_cast<const FrameHeader*>(frame.data())->format);
}
inline bool IsDense(const transport::Frame& frame) {
  return FormatOf(frame) == Format::kDense;
}
// Of a dense frame.
inline std::byte* ValuesOf(const transport::Frame& frame) {
  return frame.data() + sizeof(FrameHeader);
}

// One run of steps on one slice. Lives as long as RunSteps.
//
// step_run.cc: reading, copying, storing; step_run_reduce.cc: reductions; step_run_send.cc: sends;
// step_run_lossy.cc: what lossy sends need besides.
class StepRun {
 public:
  StepRun(const StepContext& context, StepArgs args);
  StepRun(const StepRun&) = delete;
  StepRun& operator=(const StepRun&) = delete;

  StepResult Run();

 private:
  // A slice to read: where it is, its type, and the held frame that it is in, if that is not needed
  // after this run.
  struct Source {
    const void* data = nullptr;
    DType type = DType::kFloat32;
    transport::Frame spare = {};
  };
  // A slice of partial sums that may be written to, and the dense frame that it is in, if it is.
  struct Sum {
    std::byte* data = nullptr;
    transport::Frame frame = {};
  };

  absl::Status Dispatch();
  // What the run did, to the ring of this thread.
  void WriteSpans();
  void NoteFrame(const transport::Frame& frame, Span* span) const;
  uint32_t RankOf(uint32_t participant) const { return context_.plan->first_rank[participant]; }
  DType TypeOnTheWay(const plan::Step& step) const;
  absl::Status CheckFrame(const plan::Step& step);
  transport::Frame NewDenseFrame(DType type);

  // Sources.

  absl::Status ReadInput(Source* source);
  absl::Status UseHeld(HeldKind kind, transport::Frame* held, bool keep, Source* source);
  absl::Status ReadOperand(const plan::Step& step, Source* source);

  // Reductions.

  Sum NewSum(bool in_frame);
  bool AddsSparse() const;
  // *sum = what came, combined with the operand. In a frame that is there already, where there is
  // one that nobody else reads: no copy. in_frame: anyway in a frame.
  absl::Status Combine(const plan::Step& step, bool in_frame, Sum* sum);
  absl::Status CombineSparse(Source own, bool in_frame, Sum* sum);
  absl::Status CombineDense(const plan::Step& step, const Source& own, bool in_frame, Sum* sum);
  void CopyWidening(const void* from, DType type, std::byte* to);
  // The work on the frame that came, of which the slice's bytes are counted now.
  CodecWork* TakingIn(const transport::Frame& frame);
  absl::Status ReduceKeep(const plan::Step& step);
  // hot_: the result as it was left in the caches, or in the output.
  absl::Status ReduceStore(const plan::Step& step);
  DType OperandType(const plan::Step& step) const;

  // Sums in the outputs. What is there is read and written only where a sparse frame has values.

  // Whether this step's chunk may be summed up there.
  bool MaySumInOutputs() const;
  bool LiesInOutput(const void* input) const;
  // Whether what came can be added to what the outputs hold, which is the operand.
  bool AddsInOutputs(const plan::Step& step) const;
  void ReduceInOutputs();
  // `data` is the input or a partial.
  absl::Status PutInOutputs(const void* data);
  // The operand is put there, and what came is added: no sum is made that nobody sends.
  absl::Status StartInOutputs(const plan::Step& step);
  // One pass over what came, the operand and the outputs.
  absl::Status ReduceStoreDense(const Source& own);
  // The all-gather decides by the shard's own sparsity, and the shard is in the cache.
  bool CountsResult() const;
  void CountResult();
  void NoteCounted(uint64_t nnz);
  absl::Status WriteResult(const std::byte* result);

  // Copies and stores.

  absl::Status Copy();
  // The only participant: its input is the result.
  absl::Status CopyReduced(std::span<const void* const> inputs);
  // Stores what a frame of the operation's type holds.
  absl::Status Store(const transport::Frame& frame);

  // Sends.

  absl::Status Send(const plan::Step& step);
  // What the run's first step has stored, to all that it is to be sent to.
  absl::Status SendStored() { return Emit(run_.subspan(1), hot_, op_.dtype, std::move(stored_)); }
  DType SentType(const plan::Step& step) const;

  // Sends the slice at `values`, of `type`, to where `sends` say. `holder`, if valid, is a dense
  // frame with these values.
  absl::Status Emit(std::span<const plan::Step> sends, const void* values, DType type,
                    transport::Frame holder);
  // `counted`: the decision was made by the slice's nonzeros.
  transport::Frame Encoded(const void* values, DType type, transport::Frame holder, bool counted);
  // What the decision comes to that is to be made by the slice's nonzeros.
  struct Choice {
    policy::SendPolicy policy;  // told of them
    policy::Decision decision;
    uint64_t nnz = 0;              // an estimate where that will do
    bool encoding_counts = false;  // what was estimated, and need not be counted before
  };
  Choice ChosenByNonzeros(const void* values, DType type) const;
  void Take(const Choice& choice);
  // Turns the decision into a dense one if nothing is gained; the frame then is only memory.
  // `counted`: the policy knows the density already.
  transport::Frame Compressed(const void* values, DType type, bool counted);
  // Encodes the slice into *frame, which has room for it. Returns the number of nonzeros.
  uint64_t EncodeInto(Format format, const void* values, DType type, transport::Frame* frame);

  // Lossy sends (step_run_lossy.cc). What is sent is what this participant goes on with itself, so
  // that all come to the same.

  bool SendsLossily(const plan::Step& send) const;
  // Not valid if the slice is to go exactly; *counted as Encoded() is to be told.
  transport::Frame EncodedLossily(const plan::Step& send, const void* values, DType type,
                                  bool* counted);
  // Not valid if the format cannot hold the values.
  transport::Frame LossyFrame(const void* values, DType type);
  bool QsgdPays(const void* values, DType type) const;
  absl::Status TakeAsSent(const plan::Step& send, const transport::Frame& frame, DType type);
  void HoldDecoded(HeldKind kind, const transport::Frame& frame, DType type);

  void CountInput(uint64_t nnz);
  uint64_t DenseBytes(DType type) const;
  // Final values go on as they came.
  absl::Status PassOn(std::span<const plan::Step> sends, transport::Frame frame);
  absl::Status Post(std::span<const plan::Step> sends, DType type, transport::Frame frame);
  // Of a step of this run, in the participant's steps.
  size_t StepIndex(const plan::Step& step) const {
    return args_.step + static_cast<size_t>(&step - run_.data());
  }
  policy::Link LinkTo(uint32_t peer) const { return context_.LinkBetween(args_.participant, peer); }

  const StepContext& context_;
  const OpDesc& op_;
  StepArgs args_;
  const StepUse& use_;
  const std::span<const plan::Step> run_;
  const DType partial_type_;
  const uint32_t chunk_;
  SliceMemory memory_;
  const uint64_t elements_;
  std::byte *part_room_, *wide_room_, *sum_room_, *output_room_;  // in scratch
  const void* hot_ = nullptr;  // what the first step has stored, as it was left in the caches
  transport::Frame stored_;    // a dense frame of it, if there is one
  StepResult result_;
  // For the spans: when, and what came and was sent.
  WorkTime gather_, reduce_, encode_, send_;
  Span came_, sent_;
};

}  // namespace spccl::runtime
