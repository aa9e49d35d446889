// The plain oracle of frames and reductions: written from docs/wire.md and redop.h alone, one
// element at a time, sharing no code with the codecs (only the enumerations of dtypes, formats and
// reductions).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/redop.h"

namespace spccl::oracle {

using Bytes = std::vector<uint8_t>;

// By value: a negative zero is a zero, a NaN is not.
bool IsNonzero(DType dtype, const uint8_t* element);

// The frame of `elements` elements at `dense`, byte for byte.
Bytes EncodeFrame(Format format, DType dtype, const uint8_t* dense, uint64_t elements);

// The elements of a valid frame.
Bytes DecodeFrame(const Bytes& frame);

// Which elements a valid frame stores, by position.
std::vector<bool> StoredElements(const Bytes& frame);

// accumulator[i] += frame[i] for each stored element.
void AddFrame(const Bytes& frame, DType accumulator_dtype, Bytes& accumulator);

// What Reduce() of kernels/host/dense.h must write.
Bytes Reduce(DType dtype, RedOp op, const std::vector<const uint8_t*>& inputs, uint64_t elements);

// Whether two elements are the same: bit for bit, or both a NaN.
bool SameElement(DType dtype, const uint8_t* a, const uint8_t* b);

// The index of the first element that differs, or `elements`.
uint64_t FirstDifference(DType dtype, const uint8_t* a, const uint8_t* b, uint64_t elements);

// The float of a 16-bit float, and the 16-bit float nearest to a float (ties to even).
float FromFloat16(uint16_t bits);
float FromBfloat16(uint16_t bits);
uint16_t ToFloat16(float value);
uint16_t ToBfloat16(float value);

}  // namespace spccl::oracle
