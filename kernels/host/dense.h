// Dense kernels of the host: reduce several inputs into several outputs in one pass, copy one input
// to several outputs. No allocation, no system call; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"
#include "kernels/redop.h"

namespace spccl {

// outputs[j][i] = op over r of inputs[r][i], for i < elements; every output gets the same values.
// Inputs are read once and combined in index order in AccumulatorOf(dtype, op); avg divides by
// inputs.size(); the result is rounded once to `dtype`. An output may be one of the inputs (in
// place) or disjoint from all of them; partial overlap is not allowed. At least one input.
// `streaming`: write with non-temporal stores where the processor has them (worth it when the
// outputs do not fit in the cache); complete and ordered when the call returns.
void Reduce(DType dtype, RedOp op, std::span<const void* const> inputs,
            std::span<void* const> outputs, uint64_t elements, bool streaming);

// Copies `bytes` bytes from `input` to each output that is not `input` itself, reading it once.
void CopyToMany(const void* input, std::span<void* const> outputs, uint64_t bytes, bool streaming);

// Steps of a ring: accumulators have AccumulatorOf(dtype, op)'s type.
// accumulator[i] = widen(input[i])
void Widen(DType dtype, RedOp op, const void* input, void* accumulator, uint64_t elements);
// accumulator[i] = accumulator[i] op partial[i], both of the accumulator's type
void Accumulate(DType accumulator_dtype, RedOp op, const void* partial, void* accumulator,
                uint64_t elements);
// output[i] = round(accumulator[i]); avg divides by `ranks` first. Input may equal output when the
// types are equal.
void Finish(DType dtype, RedOp op, const void* accumulator, void* output, uint64_t elements,
            uint32_t ranks);

}  // namespace spccl
