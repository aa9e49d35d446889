// What the table of kernels/device/codec_table.h points to, file by file. Codes that are none are
// refused with cudaErrorInvalidValue; lossy formats, which have no kernels, too.
#pragma once

#include <cstdint>

#include "kernels/device/codec_table.h"
#include "kernels/format.h"
#include "kernels/redop.h"

namespace spccl::launch {

using device::DeviceFrame;
using device::Queue;

constexpr bool IsExactFormat(uint8_t format) {
  return format < kExactFormatCount;
}
constexpr bool IsKnown(const DeviceFrame& frame) {
  return IsExactFormat(frame.format) && IsValidDType(frame.dtype);
}

// codec_table.cu
const char* ErrorText(int error);
int ResidentBlocks(int device, uint32_t* blocks);
uint64_t ScratchBytes(uint8_t format, uint8_t dtype, uint64_t elements);
// encode.cu
int Encode(const Queue* queue, uint8_t format, uint8_t dtype, const void* dense, uint64_t elements,
           void* frame, void* scratch);
int CountNonzeros(const Queue* queue, uint8_t dtype, const void* dense, uint64_t elements,
                  uint64_t* count);
// decode.cu
int ValidateBody(const Queue* queue, const DeviceFrame* frame, uint32_t* faults);
int Decode(const Queue* queue, const DeviceFrame* frame, void* dense);
// reduce_into.cu
int ReduceInto(const Queue* queue, const DeviceFrame* frame, void* accumulator,
               uint8_t accumulator_dtype);
// fused.cu
int AddAndEncode(const Queue* queue, const DeviceFrame* frame, uint8_t local_dtype,
                 const void* local, void* to, void* scratch);
// reduce.cu
int Reduce(const Queue* queue, uint8_t dtype, uint8_t redop, const void* const* inputs,
           uint32_t input_count, void* const* outputs, uint32_t output_count, uint64_t elements);
// steps.cu
int Widen(const Queue* queue, uint8_t dtype, uint8_t redop, const void* input, void* accumulator,
          uint64_t elements);
int Accumulate(const Queue* queue, uint8_t accumulator_dtype, uint8_t redop, const void* partial,
               void* accumulator, uint64_t elements);
int Finish(const Queue* queue, uint8_t dtype, uint8_t redop, const void* accumulator,
           void* const* outputs, uint32_t output_count, uint64_t elements, uint32_t ranks);
int CopyToMany(const Queue* queue, uint8_t dtype, const void* input, void* const* outputs,
               uint32_t output_count, uint64_t elements);

}  // namespace spccl::launch
