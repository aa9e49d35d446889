// The kernels for GPU memory, as a library that is loaded where there is a GPU: a table of C
// functions, so that neither spccld nor its build needs a CUDA toolkit.
//
// libspccl_device.so (kernels/launch, compiled by nvcc) exports it for GPUs; tests have another
// that runs the same kernels on the fibre lane (tests/support/fake_cuda). Every function enqueues
// on a stream of the driver's (CUstream) whose context is the thread's current one, and returns at
// once; none waits or allocates. Results are the runtime's error codes, 0 for success. Pointers,
// alignment, scratch and what frames must be: as in kernels/sparse/device_codec.h. Thread-safe;
// uses of one scratch are ordered by their stream.
#pragma once

#include <cstdint>

namespace spccl::device {

inline constexpr uint32_t kCodecTableVersion = 1;

// Where to enqueue. `resident_blocks`: of the stream's device, by resident_blocks() below.
struct Queue {
  void* stream;
  uint32_t resident_blocks;
};

// Codes are those of kernels/format.h, kernels/dtype.h and kernels/redop.h.
struct DeviceFrame {
  uint8_t format;
  uint8_t dtype;
  uint64_t elements;
  uint64_t nnz;
  const void* frame;
};

struct CodecTable {
  uint32_t version;  // kCodecTableVersion
  uint32_t bytes;    // sizeof(CodecTable)

  // What an error code means, for people; static text.
  const char* (*error_text)(int error);
  // Blocks of 256 threads that the device (an ordinal) runs at a time. Makes ready for launches in
  // the current context, which is the device's: the only function that may wait.
  int (*resident_blocks)(int device, uint32_t* blocks);
  // Bytes of zeroed device memory that encoding so many elements needs.
  uint64_t (*scratch_bytes)(uint8_t format, uint8_t dtype, uint64_t elements);

  int (*encode)(const Queue* queue, uint8_t format, uint8_t dtype, const void* dense,
                uint64_t elements, void* frame, void* scratch);
  // Sets *faults, in memory that the device reaches, to 1 if the body lies; the header has been
  // checked by the host.
  int (*validate_body)(const Queue* queue, const DeviceFrame* frame, uint32_t* faults);
  int (*decode)(const Queue* queue, const DeviceFrame* frame, void* dense);
  int (*reduce_into)(const Queue* queue, const DeviceFrame* frame, void* accumulator,
                     uint8_t accumulator_dtype);
  // `to` gets the pici frame of (local + frame).
  int (*add_and_encode)(const Queue* queue, const DeviceFrame* frame, uint8_t local_dtype,
                        const void* local, void* to, void* scratch);
  // Adds the number of nonzeros to *count, in device memory.
  int (*count_nonzeros)(const Queue* queue, uint8_t dtype, const void* dense, uint64_t elements,
                        uint64_t* count);
  // outputs[j][i] = op over r of inputs[r][i]; at most kMaxReduceBuffers of each.
  int (*reduce)(const Queue* queue, uint8_t dtype, uint8_t redop, const void* const* inputs,
                uint32_t input_count, void* const* outputs, uint32_t output_count,
                uint64_t elements);

  // Partial sums, which have AccumulatorOf(dtype, redop)'s type; as kernels/host/dense.h has them.
  // accumulator[i] = widen(input[i])
  int (*widen)(const Queue* queue, uint8_t dtype, uint8_t redop, const void* input,
               void* accumulator, uint64_t elements);
  // accumulator[i] = accumulator[i] op partial[i], both of the accumulator's type
  int (*accumulate)(const Queue* queue, uint8_t accumulator_dtype, uint8_t redop,
                    const void* partial, void* accumulator, uint64_t elements);
  // outputs[j][i] = round(accumulator[i]); avg divides by `ranks` first. An output may be the
  // accumulator where the types are equal.
  int (*finish)(const Queue* queue, uint8_t dtype, uint8_t redop, const void* accumulator,
                void* const* outputs, uint32_t output_count, uint64_t elements, uint32_t ranks);
  // Copies elements of `dtype` to each output that is not the input itself, reading them once.
  int (*copy_to_many)(const Queue* queue, uint8_t dtype, const void* input, void* const* outputs,
                      uint32_t output_count, uint64_t elements);
};

// The one symbol that such a library exports.
inline constexpr char kCodecTableSymbol[] = "spccl_device_codec_table";
using GetCodecTable = const CodecTable* (*)();

}  // namespace spccl::device
