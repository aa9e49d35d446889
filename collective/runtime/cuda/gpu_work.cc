#include "collective/runtime/cuda/gpu_work.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collective/runtime/cuda/names.h"
#include "kernels/host/codec.h"

namespace spccl::runtime {

absl::Status KernelStatus(const Gpus& gpus, const Gpu& gpu, int error, std::string_view what) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("GPU ", gpu.index(), " (", gpu.name(), "), kernel ",
                                          std::string(what), ": ", gpus.codec().error_text(error)));
}

absl::Status EnqueueEncode(Gpus& gpus, Gpu& gpu, uint64_t lane, Format format, DType type,
                           const void* values, uint64_t elements, transport::Frame* frame) {
  const device::CodecTable& codec = gpus.codec();
  const cuda::Driver& driver = *gpus.driver();
  const device::Queue queue = gpu.QueueOf(lane);
  auto* const stream = static_cast<cuda::Stream>(queue.stream);
  const uint64_t scratch_bytes = codec.scratch_bytes(Code(format), Code(type), elements);
  SPCCL_ASSIGN_OR_RETURN(const uint64_t scratch, gpu.ScratchOf(lane, scratch_bytes));
  SPCCL_ASSIGN_OR_RETURN(*frame,
                         gpu.TakeFrame(MaxFrameBytes(format, type, elements) + kEncodeSlack));
  // Others encode with it, in other sizes and formats: what must be zero at first lies in front,
  // and pici needs nothing else.
  const uint64_t states = codec.scratch_bytes(Code(Format::kPici), Code(type), elements);
  SPCCL_RETURN_IF_ERROR(
      driver.ToStatus(driver.MemsetD8Async(scratch, 0, std::min(states, scratch_bytes), stream),
                      "cuMemsetD8Async"));
  SPCCL_RETURN_IF_ERROR(KernelStatus(
      gpus, gpu,
      codec.encode(&queue, Code(format), Code(type), values, elements, frame->data(),
                   reinterpret_cast<void*>(scratch)),  // NOLINT(performance-no-int-to-ptr)
      "encode"));
  return driver.ToStatus(driver.MemcpyAsync(PointerOf(frame->header()), PointerOf(frame->data()),
                                            sizeof(FrameHeader), stream),
                         "cuMemcpyAsync");
}

}  // namespace spccl::runtime
