// The table of the fake's kernels.
#include <memory>
#include <vector>

#include "kernels/host/codec.h"
#include "kernels/host/dense.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/fake_device_codec.h"

namespace spccl::fake_cuda {
namespace {

using device::DeviceFrame;
using device::Queue;
using sparse::FrameInfo;
using Range = Launch::Range;

constexpr int kInvalidValue = 1;
constexpr uint64_t kFrameAlignment = 16;

bool IsExact(uint8_t format) {
  return format < kExactFormatCount;
}
bool IsKnown(const DeviceFrame& frame) {
  return IsExact(frame.format) && IsValidDType(frame.dtype);
}
bool AreKnown(uint8_t dtype, uint8_t redop) {
  return IsValidDType(dtype) && IsValidRedOp(redop);
}

FrameInfo InfoOf(const DeviceFrame& frame) {
  return {static_cast<Format>(frame.format), static_cast<DType>(frame.dtype), frame.elements,
          frame.nnz};
}
uint64_t DenseBytes(DType dtype, uint64_t elements) {
  return elements * SizeOf(dtype);
}
Range DenseRange(DType dtype, const void* dense, uint64_t elements) {
  return {dense, DenseBytes(dtype, elements), SizeOf(dtype)};
}
Range FrameRange(const FrameInfo& info, const void* frame) {
  return {frame, FrameBytes(info.format, info.dtype, info.elements, info.nnz), kFrameAlignment};
}
Range RoomRange(Format format, DType dtype, const void* frame, uint64_t elements) {
  return {frame, MaxFrameBytes(format, dtype, elements), kFrameAlignment};
}
Range ScratchRange(Format format, DType dtype, const void* scratch, uint64_t elements) {
  return {scratch, sparse::ScratchBytes(format, dtype, elements), kFrameAlignment};
}
void AddDenseRanges(DType dtype, const std::vector<void*>& arrays, uint64_t elements,
                    std::vector<Range>* ranges) {
  for (const void* array : arrays) ranges->push_back(DenseRange(dtype, array, elements));
}

// Where the CPU finds what a kernel is given.
template <class T>
T* Here(T* pointer) {
  return static_cast<T*>(spcclFakeHere(reinterpret_cast<uintptr_t>(pointer)));
}
template <class T>
std::vector<T*> Here(const std::vector<T*>& pointers) {
  std::vector<T*> here;
  for (T* const pointer : pointers) here.push_back(Here(pointer));
  return here;
}
using Inputs = std::span<const void* const>;
using Outputs = std::span<void* const>;

const char* ErrorText(int error) {
  return error == 0 ? "no error" : "an error of the fake device";
}

int ResidentBlocks(int, uint32_t* blocks) {
  *blocks = kResidentBlocks;
  return 0;
}

uint64_t ScratchBytes(uint8_t format, uint8_t dtype, uint64_t elements) {
  if (!IsExact(format) || !IsValidDType(dtype)) return 0;
  return sparse::ScratchBytes(static_cast<Format>(format), static_cast<DType>(dtype), elements);
}

int Encode(const Queue* queue, uint8_t format_code, uint8_t dtype_code, const void* dense,
           uint64_t elements, void* frame, void* scratch) {
  if (!IsExact(format_code) || !IsValidDType(dtype_code)) return kInvalidValue;
  const auto format = static_cast<Format>(format_code);
  const auto dtype = static_cast<DType>(dtype_code);
  return Enqueue(
      *queue,
      {.ranges = {DenseRange(dtype, dense, elements), RoomRange(format, dtype, frame, elements),
                  ScratchRange(format, dtype, scratch, elements)},
       .dense_bytes = DenseBytes(dtype, elements),
       .kernels =
           [=](KernelLauncher& launcher) {
             sparse::Encode(launcher, format, dtype, Here(dense), elements, Here(frame),
                            Here(scratch));
           },
       .host = [=] { host::Encode(format, dtype, Here(dense), elements, Here(frame)); }});
}

int ValidateBody(const Queue* queue, const DeviceFrame* frame, uint32_t* faults) {
  if (!IsKnown(*frame)) return kInvalidValue;
  const FrameInfo info = InfoOf(*frame);
  const void* const body = frame->frame;
  return Enqueue(*queue,
                 {.ranges = {FrameRange(info, body), {faults, sizeof(*faults), sizeof(*faults)}},
                  .dense_bytes = DenseBytes(info.dtype, info.elements),
                  .kernels =
                      [=](KernelLauncher& launcher) {
                        sparse::ValidateBody(launcher, info, Here(body), Here(faults));
                      },
                  .host = [=] { host::ValidateBody(info, Here(body), Here(faults)); }});
}

int Decode(const Queue* queue, const DeviceFrame* frame, void* dense) {
  if (!IsKnown(*frame)) return kInvalidValue;
  const FrameInfo info = InfoOf(*frame);
  const void* const body = frame->frame;
  return Enqueue(*queue,
                 {.ranges = {FrameRange(info, body), DenseRange(info.dtype, dense, info.elements)},
                  .dense_bytes = DenseBytes(info.dtype, info.elements),
                  .kernels =
                      [=](KernelLauncher& launcher) {
                        sparse::Decode(launcher, info, Here(body), Here(dense));
                      },
                  .host = [=] { spccl::Decode(Here(body), Here(dense)); }});
}

int ReduceInto(const Queue* queue, const DeviceFrame* frame, void* accumulator,
               uint8_t accumulator_code) {
  if (!IsKnown(*frame) || !IsValidDType(accumulator_code)) return kInvalidValue;
  const FrameInfo info = InfoOf(*frame);
  const void* const body = frame->frame;
  const auto dtype = static_cast<DType>(accumulator_code);
  return Enqueue(*queue,
                 {.ranges = {FrameRange(info, body), DenseRange(dtype, accumulator, info.elements)},
                  .dense_bytes = DenseBytes(info.dtype, info.elements),
                  .kernels =
                      [=](KernelLauncher& launcher) {
                        sparse::ReduceInto(launcher, info, Here(body), Here(accumulator), dtype);
                      },
                  .host = [=] { spccl::ReduceInto(Here(body), Here(accumulator), dtype); }});
}

int AddAndEncode(const Queue* queue, const DeviceFrame* frame, uint8_t local_code,
                 const void* local, void* to, void* scratch) {
  const bool is_pici = frame->format == static_cast<uint8_t>(Format::kPici);
  if (!IsKnown(*frame) || !is_pici || !IsValidDType(local_code)) return kInvalidValue;
  const FrameInfo info = InfoOf(*frame);
  const void* const body = frame->frame;
  const auto local_dtype = static_cast<DType>(local_code);
  return Enqueue(
      *queue,
      {.ranges = {FrameRange(info, body), DenseRange(local_dtype, local, info.elements),
                  RoomRange(Format::kPici, info.dtype, to, info.elements),
                  ScratchRange(Format::kPici, info.dtype, scratch, info.elements)},
       .dense_bytes = DenseBytes(info.dtype, info.elements),
       .kernels =
           [=](KernelLauncher& launcher) {
             sparse::AddAndEncode(launcher, info, Here(body), local_dtype, Here(local), Here(to),
                                  Here(scratch));
           },
       .host = [=] { host::AddAndEncode(info, Here(body), local_dtype, Here(local), Here(to)); }});
}

int CountNonzeros(const Queue* queue, uint8_t dtype_code, const void* dense, uint64_t elements,
                  uint64_t* count) {
  if (!IsValidDType(dtype_code)) return kInvalidValue;
  const auto dtype = static_cast<DType>(dtype_code);
  return Enqueue(
      *queue,
      {.ranges = {DenseRange(dtype, dense, elements), {count, sizeof(*count), sizeof(*count)}},
       .dense_bytes = DenseBytes(dtype, elements),
       .kernels =
           [=](KernelLauncher& launcher) {
             sparse::Count(launcher, dtype, Here(dense), elements, Here(count));
           },
       .host = [=] { *Here(count) += spccl::CountNonzeros(dtype, Here(dense), elements); }});
}

int Reduce(const Queue* queue, uint8_t dtype_code, uint8_t redop, const void* const* inputs,
           uint32_t input_count, void* const* outputs, uint32_t output_count, uint64_t elements) {
  if (!AreKnown(dtype_code, redop) || input_count == 0 || input_count > sparse::kMaxReduceBuffers ||
      output_count > sparse::kMaxReduceBuffers) {
    return kInvalidValue;
  }
  const auto dtype = static_cast<DType>(dtype_code);
  const auto op = static_cast<RedOp>(redop);
  const std::vector<const void*> from(inputs, inputs + input_count);
  const std::vector<void*> to(outputs, outputs + output_count);
  Launch launch = {.dense_bytes = DenseBytes(dtype, elements) * input_count};
  AddDenseRanges(dtype, to, elements, &launch.ranges);
  for (const void* input : from) launch.ranges.push_back(DenseRange(dtype, input, elements));
  launch.kernels = [=](KernelLauncher& launcher) {
    sparse::Reduce(launcher, dtype, op, Inputs(Here(from)), Outputs(Here(to)), elements);
  };
  launch.host = [=] {
    spccl::Reduce(dtype, op, Inputs(Here(from)), Outputs(Here(to)), elements, false);
  };
  return Enqueue(*queue, std::move(launch));
}

int Widen(const Queue* queue, uint8_t dtype_code, uint8_t redop, const void* input,
          void* accumulator, uint64_t elements) {
  if (!AreKnown(dtype_code, redop)) return kInvalidValue;
  const auto dtype = static_cast<DType>(dtype_code);
  const auto op = static_cast<RedOp>(redop);
  return Enqueue(
      *queue, {.ranges = {DenseRange(dtype, input, elements),
                          DenseRange(AccumulatorOf(dtype, op), accumulator, elements)},
               .dense_bytes = DenseBytes(dtype, elements),
               .kernels =
                   [=](KernelLauncher& launcher) {
                     sparse::Widen(launcher, dtype, op, Here(input), Here(accumulator), elements);
                   },
               .host = [=] { spccl::Widen(dtype, op, Here(input), Here(accumulator), elements); }});
}

int Accumulate(const Queue* queue, uint8_t accumulator_code, uint8_t redop, const void* partial,
               void* accumulator, uint64_t elements) {
  if (!AreKnown(accumulator_code, redop)) return kInvalidValue;
  const auto dtype = static_cast<DType>(accumulator_code);
  const auto op = static_cast<RedOp>(redop);
  return Enqueue(
      *queue,
      {.ranges = {DenseRange(dtype, partial, elements), DenseRange(dtype, accumulator, elements)},
       .dense_bytes = DenseBytes(dtype, elements),
       .kernels =
           [=](KernelLauncher& launcher) {
             sparse::Accumulate(launcher, dtype, op, Here(partial), Here(accumulator), elements);
           },
       .host = [=] { spccl::Accumulate(dtype, op, Here(partial), Here(accumulator), elements); }});
}

int Finish(const Queue* queue, uint8_t dtype_code, uint8_t redop, const void* accumulator,
           void* const* outputs, uint32_t output_count, uint64_t elements, uint32_t ranks) {
  if (!AreKnown(dtype_code, redop) || ranks == 0 || output_count > sparse::kMaxReduceBuffers) {
    return kInvalidValue;
  }
  const auto dtype = static_cast<DType>(dtype_code);
  const auto op = static_cast<RedOp>(redop);
  const std::vector<void*> to(outputs, outputs + output_count);
  Launch launch = {.ranges = {DenseRange(AccumulatorOf(dtype, op), accumulator, elements)},
                   .dense_bytes = DenseBytes(dtype, elements)};
  AddDenseRanges(dtype, to, elements, &launch.ranges);
  launch.kernels = [=](KernelLauncher& launcher) {
    sparse::Finish(launcher, dtype, op, Here(accumulator), Outputs(Here(to)), elements, ranks);
  };
  launch.host = [=] {
    host::Finish(dtype, op, Here(accumulator), Outputs(Here(to)), elements, ranks);
  };
  return Enqueue(*queue, std::move(launch));
}

int CopyToMany(const Queue* queue, uint8_t dtype_code, const void* input, void* const* outputs,
               uint32_t output_count, uint64_t elements) {
  if (!IsValidDType(dtype_code) || output_count > sparse::kMaxReduceBuffers) return kInvalidValue;
  const auto dtype = static_cast<DType>(dtype_code);
  const std::vector<void*> to(outputs, outputs + output_count);
  Launch launch = {.ranges = {DenseRange(dtype, input, elements)},
                   .dense_bytes = DenseBytes(dtype, elements)};
  AddDenseRanges(dtype, to, elements, &launch.ranges);
  launch.kernels = [=](KernelLauncher& launcher) {
    sparse::CopyToMany(launcher, dtype, Here(input), Outputs(Here(to)), elements);
  };
  launch.host = [=] {
    spccl::CopyToMany(Here(input), Outputs(Here(to)), DenseBytes(dtype, elements), false);
  };
  return Enqueue(*queue, std::move(launch));
}

constexpr device::CodecTable kTable = {
    .version = device::kCodecTableVersion,
    .bytes = sizeof(device::CodecTable),
    .error_text = ErrorText,
    .resident_blocks = ResidentBlocks,
    .scratch_bytes = ScratchBytes,
    .encode = Encode,
    .validate_body = ValidateBody,
    .decode = Decode,
    .reduce_into = ReduceInto,
    .add_and_encode = AddAndEncode,
    .count_nonzeros = CountNonzeros,
    .reduce = Reduce,
    .widen = Widen,
    .accumulate = Accumulate,
    .finish = Finish,
    .copy_to_many = CopyToMany,
};

}  // namespace
}  // namespace spccl::fake_cuda

extern "C" __attribute__((visibility("default"))) const spccl::device::CodecTable*
spccl_device_codec_table() {
  return &spccl::fake_cuda::kTable;
}
