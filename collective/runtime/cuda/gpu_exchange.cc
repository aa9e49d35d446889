#include "collective/runtime/cuda/gpu_exchange.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/runtime/cuda/gpu_run.h"
#include "collective/runtime/cuda/gpu_slice.h"
#include "collective/runtime/cuda/gpu_work.h"
#include "collective/runtime/cuda/names.h"
#include "kernels/host/codec.h"

namespace spccl::runtime {

using transport::Frame;

IntraPolicy::IntraPolicy(const policy::Settings& settings, const OpDesc& op, size_t gpus) {
  using policy::Codec;
  const bool pays = !Reduces(op.kind) || SparsityPays(op.dtype, op.redop);
  if (settings.codec == Codec::kDense || gpus < 2 || !pays) return;
  const bool coo = settings.codec == Codec::kCoo;
  // Which of them is smaller is not known before; pici's loses less where it is not.
  format_ = settings.codec == Codec::kAuto         ? Format::kPici
            : settings.codec == Codec::kPiciColumn ? Format::kPiciColumn
            : settings.codec == Codec::kGap        ? Format::kGap
            : coo                                  ? Format::kCoo
                                                   : Format::kPici;
  const policy::Thresholds& set = coo ? settings.coo : settings.pici;
  const policy::Thresholds& usual = coo ? policy::kCooThresholds : policy::kPiciThresholds;
  intra_ = set.intra == policy::kAutoThreshold ? usual.intra : set.intra;
  ag_ = set.ag == policy::kAutoThreshold ? usual.ag : set.ag;
  state_.store(State::kUnknown, std::memory_order_relaxed);
}

// One rank's input.
struct Packed {
  int gpu = -1;  // where the values are
  const void* values = nullptr;
  Frame frame;  // empty: not compressed
};

namespace {

// NOLINTBEGIN(performance-no-int-to-ptr): the driver's names for memory
void* MemoryAt(uint64_t address) {
  return reinterpret_cast<void*>(address);
}
// NOLINTEND(performance-no-int-to-ptr)

// A part of the work, on a GPU that need not be the rail.

Detached EncodeAt(Gpus& gpus, uint64_t lane, Format format, DType type, uint64_t elements,
                  Packed* packed, std::shared_ptr<Join> join) {
  Gpu& gpu = gpus.at(static_cast<size_t>(packed->gpu));
  co_await ThreadOf(gpu);
  absl::Status status =
      EnqueueEncode(gpus, gpu, lane, format, type, packed->values, elements, &packed->frame);
  const absl::Status end = co_await EndOf(gpu, gpu.QueueOf(lane).stream);
  status.Update(end);
  if (status.ok()) packed->frame.set_size_bytes(SizeOfFrame(packed->frame));
  join->Arrive(status);
}

// A frame where `gpu` reaches it: itself, or a copy, which the driver makes.
absl::StatusOr<Frame> EnqueueBring(Gpus& gpus, Gpu& gpu, uint64_t lane, const Frame& frame) {
  if (gpus.reach(static_cast<size_t>(gpu.index()), static_cast<size_t>(frame.gpu()))) {
    return frame.Share();
  }
  SPCCL_ASSIGN_OR_RETURN(Frame copy, gpu.TakeFrame(frame.size_bytes()));
  copy.set_size_bytes(frame.size_bytes());
  *static_cast<FrameHeader*>(copy.header()) = HeaderOf(frame);
  const cuda::Driver& driver = *gpus.driver();
  SPCCL_RETURN_IF_ERROR(driver.ToStatus(
      driver.MemcpyAsync(PointerOf(copy.data()), PointerOf(frame.data()), frame.size_bytes(),
                         static_cast<cuda::Stream>(gpu.QueueOf(lane).stream)),
      "cuMemcpyAsync"));
  return copy;
}

absl::Status EnqueueDecodes(Gpus& gpus, Gpu& gpu, uint64_t lane, const Frame& frame,
                            const std::vector<void*>& outputs) {
  const device::Queue queue = gpu.QueueOf(lane);
  const device::DeviceFrame info = InfoOf(frame);
  for (void* const output : outputs) {
    SPCCL_RETURN_IF_ERROR(
        KernelStatus(gpus, gpu, gpus.codec().decode(&queue, &info, output), "decode"));
  }
  return absl::OkStatus();
}

Detached DecodeAt(Gpus& gpus, Gpu& gpu, uint64_t lane, Frame frame, std::vector<void*> outputs,
                  std::shared_ptr<Join> join) {
  co_await ThreadOf(gpu);
  absl::StatusOr<Frame> here = EnqueueBring(gpus, gpu, lane, frame);
  absl::Status status = here.status();
  if (status.ok()) status = EnqueueDecodes(gpus, gpu, lane, *here, outputs);
  const absl::Status end = co_await EndOf(gpu, gpu.QueueOf(lane).stream);
  status.Update(end);
  here = Frame();
  frame = Frame();
  join->Arrive(status);
}

Detached CopyAt(Gpus& gpus, Gpu& gpu, uint64_t lane, DType type, uint64_t elements,
                const void* values, std::vector<void*> outputs, std::shared_ptr<Join> join) {
  co_await ThreadOf(gpu);
  const device::Queue queue = gpu.QueueOf(lane);
  absl::Status status =
      KernelStatus(gpus, gpu,
                   gpus.codec().copy_to_many(&queue, Code(type), values, outputs.data(),
                                             static_cast<uint32_t>(outputs.size()), elements),
                   "copy");
  const absl::Status end = co_await EndOf(gpu, queue.stream);
  status.Update(end);
  join->Arrive(status);
}

}  // namespace

// One slice's exchange: what ExchangeOnGpus awaits between these calls.
class Exchange {
 public:
  Exchange(Gpus& gpus, Gpu& rail, IntraPolicy& policy, const StepContext& context,
           const StepArgs& args)
      : gpus_(gpus),
        rail_(rail),
        policy_(policy),
        op_(context.op),
        lane_(args.lane),
        slice_(gpus, rail, context, args.participant,
               context.plan->RunAt(args.participant, args.step)[0].chunk, args.lane),
        elements_(slice_.elements()),
        partial_type_(context.partial_type()),
        ranks_(context.plan->plan.ranks()) {
    for (const GpuSlice::Place& place : slice_.InputPlaces()) {
      inputs_.push_back({.gpu = place.gpu, .values = MemoryAt(place.address), .frame = {}});
    }
    for (const GpuSlice::Place& place : slice_.OutputPlaces()) {
      outputs_[place.gpu].push_back(MemoryAt(place.address));
    }
    // Where the result is made: other GPUs get it from there.
    home_ = Reduces(op_.kind) ? rail.index() : inputs_[0].gpu;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  bool HasAnythingToCompress() const {
    if (elements_ == 0) return false;
    return Reduces(op_.kind) ? !Far().empty() : outputs_.size() > outputs_.count(home_);
  }

  // The inputs, each where it is.
  std::shared_ptr<Join> StartEncodes() {
    std::vector<Packed*> packed = Far();
    if (!Reduces(op_.kind)) packed = {&inputs_[0]};
    auto join = std::make_shared<Join>(rail_, packed.size());
    for (Packed* const one : packed) {
      EncodeAt(gpus_, lane_, policy_.format(), op_.dtype, elements_, one, join);
    }
    return join;
  }
  bool Pays() {
    uint64_t nnz = 0, frames = 0, bytes = 0;
    for (const Packed& one : inputs_) {
      if (!one.frame.valid()) continue;
      ++frames;
      nnz += HeaderOf(one.frame).nnz;
      bytes += one.frame.size_bytes();
    }
    const bool pays = policy_.Pays(nnz, elements_ * frames) && bytes < frames * DenseBytes();
    policy_.Note(pays);
    if (!pays) return false;
    for (const Packed& one : inputs_) {
      if (reduces() && one.frame.valid()) CountFrame(one.frame, Phase::kReduceScatter);
    }
    // At most, as if no two had a value at the same place, the others as many as these.
    expected_nnz_ = std::min(nnz / frames * inputs_.size(), elements_);
    return true;
  }

  // *Reduces: the sum, and the result at home.
  absl::Status EnqueueSum() {
    SPCCL_ASSIGN_OR_RETURN(sum_, rail_.TakeFrame(elements_ * SizeOf(partial_type_)));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      SPCCL_RETURN_IF_ERROR(inputs_[i].frame.valid() ? AddFrame(i) : AddValues(i));
    }
    std::vector<void*>& here = outputs_[home_];
    if (here.empty()) {
      SPCCL_ASSIGN_OR_RETURN(room_, rail_.TakeFrame(slice_.bytes()));
      here.push_back(room_.data());
    }
    const device::Queue queue = rail_.QueueOf(lane_);
    return KernelStatus(
        gpus_, rail_,
        gpus_.codec().finish(&queue, Code(op_.dtype), Code(op_.redop), sum_.data(), here.data(),
                             static_cast<uint32_t>(here.size()), elements_, ranks_),
        "finish");
  }
  bool HasFarOutputs() const { return outputs_.size() > 1; }
  bool CompressesResult() const { return policy_.ResultPays(expected_nnz_, elements_); }
  absl::Status EnqueueResult() {
    return EnqueueEncode(gpus_, rail_, lane_, policy_.format(), op_.dtype, outputs_[home_][0],
                         elements_, &result_);
  }
  void NoteResult(bool compressed) {
    if (compressed) result_.set_size_bytes(SizeOfFrame(result_));
    if (!compressed || result_.size_bytes() >= DenseBytes()) result_ = Frame();
  }

  // The result, from its home to all others.
  std::shared_ptr<Join> StartSpreading() {
    const Frame& frame = Reduces(op_.kind) ? result_ : inputs_[0].frame;
    const void* const values = Reduces(op_.kind) ? outputs_[home_][0] : inputs_[0].values;
    auto join = std::make_shared<Join>(rail_, outputs_.size());
    for (auto& [gpu, outputs] : outputs_) {
      Gpu& at = gpus_.at(static_cast<size_t>(gpu));
      if (gpu == home_ && Reduces(op_.kind)) {
        join->Arrive(absl::OkStatus());  // it is there
      } else if (gpu == home_) {
        CopyAt(gpus_, at, lane_, op_.dtype, elements_, values, outputs, join);
      } else {
        DecodeAt(gpus_, at, lane_, frame.Share(), outputs, join);
        CountFrame(frame, Phase::kAllGather);
      }
    }
    return join;
  }
  bool SpreadsDensely() const { return Reduces(op_.kind) && !result_.valid(); }
  // By the driver where the rail does not reach, which knows how to copy either way.
  absl::Status EnqueueDenseSpread() {
    const cuda::Driver& driver = *gpus_.driver();
    for (const auto& [gpu, outputs] : outputs_) {
      if (gpu == home_) continue;
      for (void* const output : outputs) {
        SPCCL_RETURN_IF_ERROR(driver.ToStatus(
            driver.MemcpyAsync(PointerOf(output), PointerOf(outputs_[home_][0]), slice_.bytes(),
                               static_cast<cuda::Stream>(rail_.QueueOf(lane_).stream)),
            "cuMemcpyAsync"));
      }
    }
    return absl::OkStatus();
  }

  bool reduces() const { return Reduces(op_.kind); }
  OpStats TakeStats() { return std::move(stats_); }

 private:
  uint64_t DenseBytes() const {
    return FrameBytes(Format::kDense, op_.dtype, elements_, elements_);
  }
  std::vector<Packed*> Far() {
    std::vector<Packed*> far;
    for (Packed& one : inputs_) {
      if (one.gpu != rail_.index()) far.push_back(&one);
    }
    return far;
  }
  std::vector<const Packed*> Far() const {
    std::vector<const Packed*> far;
    for (const Packed& one : inputs_) {
      if (one.gpu != rail_.index()) far.push_back(&one);
    }
    return far;
  }

  absl::Status AddFrame(size_t i) {
    auto* const stream = static_cast<cuda::Stream>(rail_.QueueOf(lane_).stream);
    const cuda::Driver& driver = *gpus_.driver();
    SPCCL_ASSIGN_OR_RETURN(Frame here, EnqueueBring(gpus_, rail_, lane_, inputs_[i].frame));
    in_use_.push_back(std::move(here));
    if (i == 0) {
      SPCCL_RETURN_IF_ERROR(
          driver.ToStatus(driver.MemsetD8Async(PointerOf(sum_.data()), 0,
                                               elements_ * SizeOf(partial_type_), stream),
                          "cuMemsetD8Async"));
    }
    const device::Queue queue = rail_.QueueOf(lane_);
    const device::DeviceFrame info = InfoOf(in_use_.back());
    return KernelStatus(gpus_, rail_,
                        gpus_.codec().reduce_into(&queue, &info, sum_.data(), Code(partial_type_)),
                        "reduce-into");
  }
  absl::Status AddValues(size_t i) {
    const device::CodecTable& codec = gpus_.codec();
    const device::Queue queue = rail_.QueueOf(lane_);
    const void* values = inputs_[i].values;
    void* to = sum_.data();
    if (i == 0 && partial_type_ == op_.dtype) {
      return KernelStatus(gpus_, rail_,
                          codec.copy_to_many(&queue, Code(op_.dtype), values, &to, 1, elements_),
                          "copy");
    }
    if (partial_type_ != op_.dtype) {
      if (i > 0) {
        SPCCL_ASSIGN_OR_RETURN(Frame wide, rail_.TakeFrame(elements_ * SizeOf(partial_type_)));
        to = wide.data();
        in_use_.push_back(std::move(wide));
      }
      SPCCL_RETURN_IF_ERROR(KernelStatus(
          gpus_, rail_,
          codec.widen(&queue, Code(op_.dtype), Code(op_.redop), values, to, elements_), "widen"));
      if (i == 0) return absl::OkStatus();
      values = to;
    }
    return KernelStatus(gpus_, rail_,
                        codec.accumulate(&queue, Code(partial_type_), Code(op_.redop), values,
                                         sum_.data(), elements_),
                        "accumulate");
  }

  void CountFrame(const Frame& frame, Phase phase) {
    stats_.dense_bytes += DenseBytes();
    stats_.wire_bytes += frame.size_bytes();
    ++stats_.sends_by_format[static_cast<size_t>(policy_.format())];
    ++stats_.decisions[static_cast<size_t>(phase)][static_cast<size_t>(policy::Reason::kFirst)];
    ++stats_.sends_by_link[static_cast<size_t>(policy::Link::kIntra)];
    stats_.wire_bytes_by_link[static_cast<size_t>(policy::Link::kIntra)] += frame.size_bytes();
  }

  Gpus& gpus_;
  Gpu& rail_;
  IntraPolicy& policy_;
  const OpDesc& op_;
  const uint64_t lane_;
  GpuSlice slice_;
  const uint64_t elements_;
  const DType partial_type_;
  const uint32_t ranks_;
  int home_ = -1;
  std::vector<Packed> inputs_;                 // in rank order
  std::map<int, std::vector<void*>> outputs_;  // by GPU
  uint64_t expected_nnz_ = 0;
  Frame sum_, room_, result_;
  std::vector<Frame> in_use_;
  OpStats stats_;
};

Detached ExchangeOnGpus(Gpus& gpus, Gpu& rail, IntraPolicy& policy, const StepContext& context,
                        StepArgs args, std::function<void(StepResult)> ended) {
  co_await ThreadOf(rail);
  StepResult result;
  bool densely = false;
  {
    Exchange run(gpus, rail, policy, context, args);
    void* const stream = rail.QueueOf(args.lane).stream;
    absl::Status status = rail.status();
    densely = status.ok() && !run.HasAnythingToCompress();
    if (status.ok() && !densely) {
      status = co_await Arrived(run.StartEncodes());
      // Where there is no room for frames, it goes without.
      densely = absl::IsResourceExhausted(status) || (status.ok() && !run.Pays());
    }
    if (status.ok() && !densely && run.reduces()) {
      status = run.EnqueueSum();
      // Outputs are written last: what had no room before has changed nothing.
      densely = absl::IsResourceExhausted(status);
      bool compresses = status.ok() && run.HasFarOutputs() && run.CompressesResult();
      if (compresses) status = run.EnqueueResult();
      if (compresses && absl::IsResourceExhausted(status)) {
        compresses = false;
        status = absl::OkStatus();
      }
      const absl::Status end = co_await EndOf(rail, stream);
      status.Update(end);
      if (!end.ok()) densely = false;
      if (status.ok()) run.NoteResult(compresses);
    }
    if (status.ok() && !densely && run.SpreadsDensely()) {
      status = run.EnqueueDenseSpread();
      const absl::Status end = co_await EndOf(rail, stream);
      status.Update(end);
    } else if (status.ok() && !densely) {
      status = co_await Arrived(run.StartSpreading());
    }
    result.status = std::move(status);
    result.stats = run.TakeStats();
  }
  if (densely) {
    RunOnGpu(gpus, rail, context, std::move(args), std::move(ended));
    co_return;
  }
  ended(std::move(result));
}

}  // namespace spccl::runtime
