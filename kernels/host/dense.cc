#include "kernels/host/dense.h"

#include <cstdint>

#include "kernels/host/dispatch.h"

namespace spccl {

void Reduce(DType dtype, RedOp op, std::span<const void* const> inputs,
            std::span<void* const> outputs, uint64_t elements, bool streaming) {
  host::CurrentTable().reduce(dtype, op,
                              {.inputs = inputs.data(),
                               .input_count = inputs.size(),
                               .outputs = outputs.data(),
                               .output_count = outputs.size(),
                               .elements = elements,
                               .streaming = streaming});
}

void CopyToMany(const void* input, std::span<void* const> outputs, uint64_t bytes, bool streaming) {
  host::CurrentTable().copy(static_cast<const uint8_t*>(input), outputs.data(), outputs.size(),
                            bytes, streaming);
}

void Widen(DType dtype, RedOp op, const void* input, void* accumulator, uint64_t elements) {
  host::CurrentTable().widen(dtype, AccumulatorOf(dtype, op), static_cast<const uint8_t*>(input),
                             static_cast<uint8_t*>(accumulator), elements);
}

void Accumulate(DType accumulator_dtype, RedOp op, const void* partial, void* accumulator,
                uint64_t elements) {
  host::CurrentTable().accumulate(accumulator_dtype, op, static_cast<const uint8_t*>(partial),
                                  static_cast<uint8_t*>(accumulator), elements);
}

void Finish(DType dtype, RedOp op, const void* accumulator, void* output, uint64_t elements,
            uint32_t ranks) {
  host::CurrentTable().finish(dtype, op, static_cast<const uint8_t*>(accumulator),
                              static_cast<uint8_t*>(output), elements, ranks);
}

}  // namespace spccl
