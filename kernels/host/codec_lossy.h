// The lossy formats behind codec.h. Frames have passed Validate().
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/format.h"
#include "kernels/host/kernel_table.h"

namespace spccl::host {

uint64_t MaxLossyBytes(Format format, DType dtype, uint64_t elements);
void DecodeLossy(const KernelTable& table, const FrameHeader& header, const uint8_t* frame,
                 uint8_t* dense, bool streaming);
// The accumulator has the frame's dtype.
void ReduceLossy(const KernelTable& table, const FrameHeader& header, const uint8_t* frame,
                 uint8_t* accumulator);

}  // namespace spccl::host
