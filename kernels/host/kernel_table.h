// What one instruction set offers: the loops behind codec.h and dense.h. Every target fills one
// table from the same bodies (codec-inl.h, dense-inl.h); dispatch.h picks one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/lossy.h"
#include "kernels/redop.h"

namespace spccl::host {

// The sections of a pici frame that is written or read. Nothing is aligned.
struct PiciSections {
  uint8_t* bitmap;  // 64 words a tile
  uint8_t* index;   // a u32 a tile
  uint8_t* values;
  bool streaming;  // write the values past the caches
};
struct ConstPiciSections {
  const uint8_t* bitmap;
  const uint8_t* index;
  const uint8_t* values;
  uint64_t nnz;
};

// The sections of a gap frame. `shift` is its GapShapeOf().
struct GapSections {
  uint8_t* index;
  uint8_t* bitmap;  // all zero, as whole 64-bit words
  uint8_t* low;     // all zero
  uint32_t shift;
  uint64_t tiles;
};
struct ConstGapSections {
  const uint8_t* bitmap;
  const uint8_t* low;
  const uint8_t* values;
  uint64_t nnz;
  uint32_t shift;
};

// The sections of an errorbound frame, of which the encoder moves the pointers on.
struct ErrorBoundSections {
  uint8_t* index;
  uint8_t* bases;
  uint8_t* widths;
  uint8_t* planes;
  uint8_t* positions;
  uint8_t* values;
};
struct ConstErrorBoundSections {
  const uint8_t* bases;
  const uint8_t* widths;
  const uint8_t* planes;
  const uint8_t* positions;
  const uint8_t* values;
  uint64_t exact;
  double quantum;
};
struct ConstQsgdSections {
  const uint8_t* planes;
  const uint8_t* scales;
  uint32_t bits;
};
// Lossy formats are of float32 and float64.
inline constexpr int kLossyTypes = 2;
constexpr int LossyType(DType dtype) {
  return dtype == DType::kFloat64 ? 1 : 0;
}

// Widths are counted as log2 of the bytes of an element, 0 to 3.
inline constexpr int kWidthCount = 4;
constexpr int WidthLog2(DType dtype) {
  const size_t size = SizeOf(dtype);
  return size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0;
}

// How a reduction reads and keeps its elements.
struct ReduceCall {
  const void* const* inputs;
  size_t input_count;
  void* const* outputs;
  size_t output_count;
  uint64_t elements;
  bool streaming;
};

struct KernelTable {
  std::string_view name;

  // Codec, by width. Encoders return nnz and may write up to 64 bytes past the values.
  uint64_t (*count[kWidthCount])(const uint8_t* dense, uint64_t elements, uint64_t magnitude);
  uint64_t (*encode_pici[kWidthCount])(const uint8_t* dense, uint64_t elements, uint64_t magnitude,
                                       const PiciSections& out);
  uint64_t (*encode_column[kWidthCount])(const uint8_t* dense, uint64_t elements,
                                         uint64_t magnitude, const PiciSections& out);
  // The indices may run 64 bytes over too: `values` is at least 64 bytes past the last index.
  uint64_t (*encode_coo[kWidthCount])(const uint8_t* dense, uint64_t elements, uint64_t magnitude,
                                      uint8_t* indices, uint8_t* values);
  void (*decode_pici[kWidthCount])(const ConstPiciSections& in, uint64_t elements, uint8_t* dense,
                                   bool streaming);
  void (*decode_column[kWidthCount])(const ConstPiciSections& in, uint64_t elements, uint8_t* dense,
                                     bool streaming);
  void (*decode_coo[kWidthCount])(const uint8_t* indices, const uint8_t* values, uint64_t nnz,
                                  uint64_t elements, uint8_t* dense, bool streaming);
  // Makes a gap frame's position sections of coo's `nnz` indices.
  void (*pack_gap)(const uint8_t* indices, uint64_t nnz, const GapSections& out);
  void (*decode_gap[kWidthCount])(const ConstGapSections& in, uint64_t elements, uint8_t* dense,
                                  bool streaming);
  // accumulator[i] += frame[i]; `wide`: a float32 accumulator for a 16-bit float frame.
  void (*reduce_pici)(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                      uint8_t* accumulator);
  void (*reduce_column)(const ConstPiciSections& in, DType dtype, bool wide, uint64_t elements,
                        uint8_t* accumulator);
  void (*reduce_coo)(const uint8_t* indices, const uint8_t* values, uint64_t nnz, DType dtype,
                     bool wide, uint8_t* accumulator);
  void (*reduce_gap)(const ConstGapSections& in, DType dtype, bool wide, uint64_t elements,
                     uint8_t* accumulator);
  void (*reduce_dense)(const uint8_t* values, DType dtype, bool wide, uint64_t elements,
                       uint8_t* accumulator);

  // Lossy formats, by LossyType().
  double (*largest_finite[kLossyTypes])(const uint8_t* dense, uint64_t elements);
  // Returns the plane words. The bound and the quantum are of the type.
  uint64_t (*encode_errorbound[kLossyTypes])(const uint8_t* dense, uint64_t elements,
                                             double quantum, double bound, ErrorBoundSections* out);
  void (*decode_errorbound[kLossyTypes])(const ConstErrorBoundSections& in, uint64_t elements,
                                         uint8_t* dense, bool streaming);
  void (*reduce_errorbound[kLossyTypes])(const ConstErrorBoundSections& in, uint64_t elements,
                                         uint8_t* accumulator);
  // False: a bucket cannot be scaled.
  bool (*encode_qsgd[kLossyTypes])(const uint8_t* dense, uint64_t elements, uint32_t bits,
                                   const Draws& draws, uint8_t* planes, uint8_t* scales);
  void (*decode_qsgd[kLossyTypes])(const ConstQsgdSections& in, uint64_t elements, uint8_t* dense,
                                   bool streaming);
  void (*reduce_qsgd[kLossyTypes])(const ConstQsgdSections& in, uint64_t elements,
                                   uint8_t* accumulator);

  // dense.h.
  void (*reduce)(DType dtype, RedOp op, const ReduceCall& call);
  void (*copy)(const uint8_t* input, void* const* outputs, size_t output_count, uint64_t bytes,
               bool streaming);
  void (*widen)(DType dtype, DType accumulator_dtype, const uint8_t* input, uint8_t* accumulator,
                uint64_t elements);
  void (*accumulate)(DType accumulator_dtype, RedOp op, const uint8_t* partial,
                     uint8_t* accumulator, uint64_t elements);
  void (*finish)(DType dtype, RedOp op, const uint8_t* accumulator, uint8_t* output,
                 uint64_t elements, uint32_t ranks);
};

extern const KernelTable kPlainTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;       // F, BW, DQ, VL
extern const KernelTable kAvx512Vbmi2Table;  // and VBMI2: compress and expand of narrow elements
#elif defined(__aarch64__)
extern const KernelTable kNeonTable;
#endif

// How far ahead of what they read the loops ask for memory, in bytes: this processor's, from
// when its tables were looked for. Read and written as an atomic.
extern uintptr_t prefetch_ahead;

}  // namespace spccl::host
