// The reductions of a run on a GPU.
#include <utility>

#include "base/status.h"
#include "collective/runtime/cuda/gpu_run.h"
#include "collective/runtime/cuda/gpu_work.h"
#include "collective/runtime/cuda/names.h"

namespace spccl::runtime {

using plan::Operand;
using plan::Step;
using transport::Frame;

absl::Status GpuRun::WidenTo(const void* from, DType type, void* to) {
  if (type == partial_type_) {
    return Kernel(codec_.copy_to_many(&queue_, Code(type), from, &to, 1, elements_), "copy");
  }
  return Kernel(codec_.widen(&queue_, Code(type), Code(op_.redop), from, to, elements_), "widen");
}

absl::Status GpuRun::Combine(const Step& step, Frame* sum) {
  in_use_.push_back(args_.frame.Share());
  Source own;
  SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
  if (elements_ == 0) {
    SPCCL_ASSIGN_OR_RETURN(*sum, NewDense(partial_type_));
    return absl::OkStatus();
  }
  const bool sparse = !IsDense(args_.frame) && SparsityPays(op_.dtype, op_.redop);
  return sparse ? CombineSparse(std::move(own), sum) : CombineDense(step, own, sum);
}

absl::Status GpuRun::CombineSparse(Source own, Frame* sum) {
  const bool fits = own.spare.valid() && own.type == partial_type_;
  // The run's own share does not count.
  if (fits) {
    std::erase_if(in_use_, [&](const Frame& one) { return one.data() == own.spare.data(); });
  }
  if (fits && own.spare.unique()) {
    *sum = std::move(own.spare);
    in_use_.push_back(sum->Share());
  } else {
    if (own.spare.valid()) in_use_.push_back(std::move(own.spare));
    SPCCL_ASSIGN_OR_RETURN(*sum, NewDense(partial_type_));
    SPCCL_RETURN_IF_ERROR(WidenTo(own.data, own.type, ValuesOf(*sum)));
  }
  const device::DeviceFrame info = InfoOf(args_.frame);
  return Kernel(codec_.reduce_into(&queue_, &info, ValuesOf(*sum), Code(partial_type_)),
                "reduce-into");
}

absl::Status GpuRun::CombineDense(const Step& step, const Source& own, Frame* sum) {
  const DType came = TypeOnTheWay(step);
  SPCCL_ASSIGN_OR_RETURN(*sum, NewDense(partial_type_));
  const std::byte* values = ValuesOf(args_.frame);
  if (!IsDense(args_.frame)) {
    // Nothing that this side sends; but the sender chooses the format.
    SPCCL_ASSIGN_OR_RETURN(const Frame room, NewDense(came));
    const device::DeviceFrame info = InfoOf(args_.frame);
    SPCCL_RETURN_IF_ERROR(Kernel(codec_.decode(&queue_, &info, ValuesOf(room)), "decode"));
    values = ValuesOf(room);
  }
  const void* wide = own.data;
  if (own.type != partial_type_) {
    SPCCL_ASSIGN_OR_RETURN(const Frame room, NewDense(partial_type_));
    SPCCL_RETURN_IF_ERROR(WidenTo(own.data, own.type, ValuesOf(room)));
    wide = ValuesOf(room);
  }
  SPCCL_RETURN_IF_ERROR(WidenTo(values, came, ValuesOf(*sum)));
  return Kernel(codec_.accumulate(&queue_, Code(partial_type_), Code(op_.redop), wide,
                                  ValuesOf(*sum), elements_),
                "accumulate");
}

absl::Status GpuRun::ReduceStore(const Step& step) {
  SPCCL_ASSIGN_OR_RETURN(const auto outputs, slice_.Outputs());
  const uint32_t ranks = context_.plan->plan.ranks();
  const DType own_type = step.operand == Operand::kPartial ? partial_type_ : slice_.InputType();
  if (elements_ > 0 && IsDense(args_.frame) && TypeOnTheWay(step) == op_.dtype &&
      own_type == op_.dtype && (op_.redop != RedOp::kAvg || ranks == 2)) {
    // One pass over what came, the operand and the outputs.
    in_use_.push_back(args_.frame.Share());
    Source own;
    SPCCL_RETURN_IF_ERROR(ReadOperand(step, &own));
    const void* const inputs[] = {ValuesOf(args_.frame), own.data};
    SPCCL_RETURN_IF_ERROR(
        Kernel(codec_.reduce(&queue_, Code(op_.dtype), Code(op_.redop), inputs, 2, outputs.data(),
                             static_cast<uint32_t>(outputs.size()), elements_),
               "reduce"));
  } else {
    Frame sum;
    SPCCL_RETURN_IF_ERROR(Combine(step, &sum));
    if (elements_ > 0) {
      SPCCL_RETURN_IF_ERROR(Kernel(
          codec_.finish(&queue_, Code(op_.dtype), Code(op_.redop), ValuesOf(sum), outputs.data(),
                        static_cast<uint32_t>(outputs.size()), elements_, ranks),
          "finish"));
    }
  }
  SPCCL_RETURN_IF_ERROR(slice_.Spread());
  SendLater(run_.subspan(1), outputs[0], op_.dtype, Frame());
  return absl::OkStatus();
}

}  // namespace spccl::runtime
