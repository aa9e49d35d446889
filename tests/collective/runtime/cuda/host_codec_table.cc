// A table of kernels for the fake CUDA whose kernels are the host's: a thousand times faster than
// the fibre lane's, for tests of what launches them and in which order. A library that is loaded as
// libspccl_device.so is.
#include <dlfcn.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/device/codec_table.h"
#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "kernels/layout.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace spccl::device {
namespace {

struct Fake {
  decltype(&spcclFakeLaunch) launch;
  decltype(&spcclFakeReach) reach;
};

const Fake& TheFake() {
  static const Fake fake = [] {
    void* const library = ::dlopen(SPCCL_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    SPCCL_CHECK(library != nullptr);
    return Fake{reinterpret_cast<decltype(&spcclFakeLaunch)>(::dlsym(library, "spcclFakeLaunch")),
                reinterpret_cast<decltype(&spcclFakeReach)>(::dlsym(library, "spcclFakeReach"))};
  }();
  return fake;
}

// Where a kernel finds `bytes` bytes; a kernel that does not reach them ends the process.
template <class T>
T* At(T* pointer, size_t bytes) {
  if (bytes == 0) return pointer;
  return static_cast<T*>(TheFake().reach(
      reinterpret_cast<cuda::DevicePtr>(const_cast<std::remove_const_t<T>*>(pointer)), bytes));
}

int Launch(const Queue* queue, std::function<void()> kernel) {
  auto* const argument = new std::function<void()>(std::move(kernel));
  const auto drop = [](void* one) { delete static_cast<std::function<void()>*>(one); };
  return TheFake().launch(
      static_cast<cuda::Stream>(queue->stream),
      [](void* one) { (*static_cast<std::function<void()>*>(one))(); }, argument, drop);
}

DType TypeOf(uint8_t code) {
  return static_cast<DType>(code);
}
RedOp OpOf(uint8_t code) {
  return static_cast<RedOp>(code);
}
Format FormatOf(uint8_t code) {
  return static_cast<Format>(code);
}

// In scratch, as the kernels want it: zeroed, so that one that is not is found.
uint64_t StateBytes(uint64_t elements) {
  return AlignUpFrame(16 + TilesOf(elements) * sizeof(uint64_t));
}

const char* ErrorText(int /*error*/) {
  return "an error of the fake driver";
}
int ResidentBlocks(int /*device*/, uint32_t* blocks) {
  *blocks = 4;
  return 0;
}
uint64_t ScratchBytes(uint8_t format, uint8_t dtype, uint64_t elements) {
  const Format of = FormatOf(format);
  if (of != Format::kCoo && of != Format::kGap) return StateBytes(elements);
  return StateBytes(elements) + elements * (SizeOf(TypeOf(dtype)) + sizeof(uint32_t));
}

int EncodeFrame(const Queue* queue, uint8_t format, uint8_t dtype, const void* dense,
                uint64_t elements, void* frame, void* scratch) {
  return Launch(queue, [=] {
    const DType type = TypeOf(dtype);
    auto* const states = static_cast<uint64_t*>(At(scratch, ScratchBytes(format, dtype, elements)));
    for (uint64_t i = 0; i < StateBytes(elements) / sizeof(uint64_t); ++i) {
      SPCCL_CHECK(states[i] == 0);
      states[i] = i + 1;
    }
    // The host's encoder may write past the frame's end.
    const uint64_t room = MaxFrameBytes(FormatOf(format), type, elements) + kEncodeSlack;
    (void)Encode(FormatOf(format), type, At(dense, elements * SizeOf(type)), elements,
                 At(frame, room));
  });
}

int ValidateBody(const Queue* queue, const DeviceFrame* frame, uint32_t* faults) {
  return Launch(queue, [one = *frame, faults] {
    const uint64_t bytes =
        FrameBytes(FormatOf(one.format), TypeOf(one.dtype), one.elements, one.nnz);
    const FrameFault fault = Validate(At(one.frame, bytes), bytes, TypeOf(one.dtype), one.elements);
    if (!fault.ok()) *At(faults, sizeof(*faults)) = 1;
  });
}

uint64_t BytesOf(const DeviceFrame& frame) {
  return FrameBytes(FormatOf(frame.format), TypeOf(frame.dtype), frame.elements, frame.nnz);
}

int DecodeFrame(const Queue* queue, const DeviceFrame* frame, void* dense) {
  return Launch(queue, [one = *frame, dense] {
    Decode(At(one.frame, BytesOf(one)), At(dense, one.elements * SizeOf(TypeOf(one.dtype))));
  });
}

int ReduceFrameInto(const Queue* queue, const DeviceFrame* frame, void* accumulator,
                    uint8_t accumulator_dtype) {
  return Launch(queue, [one = *frame, accumulator, accumulator_dtype] {
    const DType type = TypeOf(accumulator_dtype);
    ReduceInto(At(one.frame, BytesOf(one)), At(accumulator, one.elements * SizeOf(type)), type);
  });
}

int AddAndEncode(const Queue* /*queue*/, const DeviceFrame* /*frame*/, uint8_t /*local_dtype*/,
                 const void* /*local*/, void* /*to*/, void* /*scratch*/) {
  return cuda::kErrorNotSupported;
}

int Count(const Queue* queue, uint8_t dtype, const void* dense, uint64_t elements,
          uint64_t* count) {
  return Launch(queue, [=] {
    const DType type = TypeOf(dtype);
    *At(count, sizeof(*count)) += CountNonzeros(type, At(dense, elements * SizeOf(type)), elements);
  });
}

std::vector<const void*> Reach(const std::vector<const void*>& all, size_t bytes) {
  std::vector<const void*> reached;
  for (const void* one : all) reached.push_back(At(one, bytes));
  return reached;
}
std::vector<void*> Reach(const std::vector<void*>& all, size_t bytes) {
  std::vector<void*> reached;
  for (void* one : all) reached.push_back(At(one, bytes));
  return reached;
}

int ReduceInputs(const Queue* queue, uint8_t dtype, uint8_t redop, const void* const* inputs,
                 uint32_t input_count, void* const* outputs, uint32_t output_count,
                 uint64_t elements) {
  std::vector<const void*> from(inputs, inputs + input_count);
  std::vector<void*> to(outputs, outputs + output_count);
  return Launch(queue, [=] {
    const size_t bytes = elements * SizeOf(TypeOf(dtype));
    Reduce(TypeOf(dtype), OpOf(redop), Reach(from, bytes), Reach(to, bytes), elements, false);
  });
}

int WidenInput(const Queue* queue, uint8_t dtype, uint8_t redop, const void* input,
               void* accumulator, uint64_t elements) {
  return Launch(queue, [=] {
    const DType wide = AccumulatorOf(TypeOf(dtype), OpOf(redop));
    Widen(TypeOf(dtype), OpOf(redop), At(input, elements * SizeOf(TypeOf(dtype))),
          At(accumulator, elements * SizeOf(wide)), elements);
  });
}

int AccumulatePartial(const Queue* queue, uint8_t accumulator_dtype, uint8_t redop,
                      const void* partial, void* accumulator, uint64_t elements) {
  return Launch(queue, [=] {
    const DType type = TypeOf(accumulator_dtype);
    const size_t bytes = elements * SizeOf(type);
    Accumulate(type, OpOf(redop), At(partial, bytes), At(accumulator, bytes), elements);
  });
}

int FinishSum(const Queue* queue, uint8_t dtype, uint8_t redop, const void* accumulator,
              void* const* outputs, uint32_t output_count, uint64_t elements, uint32_t ranks) {
  std::vector<void*> to(outputs, outputs + output_count);
  return Launch(queue, [=] {
    const DType wide = AccumulatorOf(TypeOf(dtype), OpOf(redop));
    const void* const from = At(accumulator, elements * SizeOf(wide));
    for (void* const output : Reach(to, elements * SizeOf(TypeOf(dtype)))) {
      Finish(TypeOf(dtype), OpOf(redop), from, output, elements, ranks);
    }
  });
}

int Copy(const Queue* queue, uint8_t dtype, const void* input, void* const* outputs,
         uint32_t output_count, uint64_t elements) {
  std::vector<void*> to(outputs, outputs + output_count);
  return Launch(queue, [=] {
    const size_t bytes = elements * SizeOf(TypeOf(dtype));
    CopyToMany(At(input, bytes), Reach(to, bytes), bytes, false);
  });
}

}  // namespace
}  // namespace spccl::device

extern "C" __attribute__((visibility("default"))) const spccl::device::CodecTable*
spccl_device_codec_table() {
  using namespace spccl::device;  // NOLINT(google-build-using-namespace)
  static const CodecTable table = {.version = kCodecTableVersion,
                                   .bytes = sizeof(CodecTable),
                                   .error_text = &ErrorText,
                                   .resident_blocks = &ResidentBlocks,
                                   .scratch_bytes = &ScratchBytes,
                                   .encode = &EncodeFrame,
                                   .validate_body = &ValidateBody,
                                   .decode = &DecodeFrame,
                                   .reduce_into = &ReduceFrameInto,
                                   .add_and_encode = &AddAndEncode,
                                   .count_nonzeros = &Count,
                                   .reduce = &ReduceInputs,
                                   .widen = &WidenInput,
                                   .accumulate = &AccumulatePartial,
                                   .finish = &FinishSum,
                                   .copy_to_many = &Copy};
  return &table;
}
