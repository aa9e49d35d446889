#include "kernels/host/codec.h"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "kernels/host/codec_lossy.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/frame_header.h"
#include "kernels/host/kernel_table.h"
#include "kernels/layout.h"

namespace spccl {
namespace {

using host::ConstGapSections;
using host::ConstPiciSections;
using host::KernelTable;
using host::PiciSections;
using host::ReadHeader;
using host::ZeroPadding;

// How far behind the last possible index coo's values are first written, so that an index store
// that runs over does not reach them.
constexpr uint64_t kCooGap = 64;

// Writes the header of a frame of these facts; returns its layout.
FrameLayout WriteHeader(Format format, DType dtype, uint64_t elements, uint64_t nnz,
                        uint8_t* frame) {
  const FrameLayout layout = LayoutOf(format, dtype, elements, nnz);
  host::WriteHeader(format, dtype, elements, nnz, layout, frame);
  return layout;
}

uint64_t EncodePiciBody(const KernelTable& table, Format format, DType dtype, const uint8_t* dense,
                        uint64_t elements, uint8_t* frame) {
  const FrameLayout layout = LayoutOf(format, dtype, elements, 0);
  const PiciSections sections = {frame + layout.bitmap, frame + layout.index, frame + layout.values,
                                 elements * SizeOf(dtype) >= kStreamingBytes};
  ZeroPadding(frame, layout.index + TilesOf(elements) * sizeof(uint32_t), layout.values);
  const int width = host::WidthLog2(dtype);
  const uint64_t magnitude = MagnitudeMask(dtype);
  return format == Format::kPici ? table.encode_pici[width](dense, elements, magnitude, sections)
                                 : table.encode_column[width](dense, elements, magnitude, sections);
}

// Where the values belong is known only when all are found: they are written behind room for the
// most indices and then moved up, which costs less than counting first.
uint64_t EncodeCooBody(const KernelTable& table, DType dtype, const uint8_t* dense,
                       uint64_t elements, uint8_t* frame) {
  uint8_t* indices = frame + sizeof(FrameHeader);
  uint8_t* provisional = frame + LayoutOf(Format::kCoo, dtype, elements, elements).values + kCooGap;
  const uint64_t nnz = table.encode_coo[host::WidthLog2(dtype)](
      dense, elements, MagnitudeMask(dtype), indices, provisional);
  const FrameLayout layout = LayoutOf(Format::kCoo, dtype, elements, nnz);
  ZeroPadding(frame, layout.index + nnz * sizeof(uint32_t), layout.values);
  std::memmove(frame + layout.values, provisional, nnz * SizeOf(dtype));
  return nnz;
}

// Where a gap encoder keeps what it finds until it knows how many there are.
struct GapRoom {
  uint64_t indices;
  uint64_t values;
};
GapRoom GapRoomOf(DType dtype, uint64_t elements) {
  // Positions take the most bits when all elements are nonzeros; what fewer may lose in rounding up
  // three sections is less than kRounding.
  constexpr uint64_t kRounding = 64;
  const uint64_t indices = LayoutOf(Format::kGap, dtype, elements, elements).values + kRounding;
  return {indices, indices + elements * sizeof(uint32_t) + kCooGap};
}

// As coo, and then the indices are packed: how far they are cut into low bits hangs on their count.
uint64_t EncodeGapBody(const KernelTable& table, DType dtype, const uint8_t* dense,
                       uint64_t elements, uint8_t* frame) {
  const GapRoom room = GapRoomOf(dtype, elements);
  const uint64_t nnz = table.encode_coo[host::WidthLog2(dtype)](
      dense, elements, MagnitudeMask(dtype), frame + room.indices, frame + room.values);
  const FrameLayout layout = LayoutOf(Format::kGap, dtype, elements, nnz);
  const GapShape shape = GapShapeOf(elements, nnz);
  ZeroPadding(frame, layout.index + shape.tiles * sizeof(uint32_t), layout.values);
  table.pack_gap(
      frame + room.indices, nnz,
      {frame + layout.index, frame + layout.bitmap, frame + layout.low, shape.shift, shape.tiles});
  std::memmove(frame + layout.values, frame + room.values, nnz * SizeOf(dtype));
  return nnz;
}

ConstGapSections GapSectionsOf(const FrameHeader& header, const uint8_t* frame) {
  const FrameLayout layout =
      LayoutOf(Format::kGap, static_cast<DType>(header.dtype), header.element_count, header.nnz);
  return {frame + layout.bitmap, frame + layout.low, frame + layout.values, header.nnz,
          GapShapeOf(header.element_count, header.nnz).shift};
}

ConstPiciSections SectionsOf(const FrameHeader& header, const uint8_t* frame) {
  return {frame + header.bitmap_offset, frame + header.index_offset, frame + header.values_offset,
          header.nnz};
}

}  // namespace

uint64_t FrameBytes(Format format, DType dtype, uint64_t elements, uint64_t nnz) {
  return LayoutOf(format, dtype, elements, nnz).total;
}

uint64_t MaxFrameBytes(Format format, DType dtype, uint64_t elements) {
  if (format == Format::kGap) {
    return GapRoomOf(dtype, elements).values + elements * SizeOf(dtype);
  }
  if (IsLossy(format)) return host::MaxLossyBytes(format, dtype, elements);
  return FrameBytes(format, dtype, elements, elements);
}

Encoded Encode(Format format, DType dtype, const void* dense, uint64_t elements, void* frame) {
  const KernelTable& table = host::CurrentTable();
  const auto* from = static_cast<const uint8_t*>(dense);
  auto* to = static_cast<uint8_t*>(frame);
  uint64_t nnz = elements;
  switch (format) {
    case Format::kDense:
      // No elements may come with no memory, which memcpy does not take.
      if (elements != 0) std::memcpy(to + sizeof(FrameHeader), from, elements * SizeOf(dtype));
      break;
    case Format::kPici:
    case Format::kPiciColumn:
      nnz = EncodePiciBody(table, format, dtype, from, elements, to);
      break;
    case Format::kCoo:
      nnz = EncodeCooBody(table, dtype, from, elements, to);
      break;
    case Format::kGap:
      nnz = EncodeGapBody(table, dtype, from, elements, to);
      break;
    default:
      SPCCL_CHECK(!"Encode() of a lossy format");
  }
  const FrameLayout layout = WriteHeader(format, dtype, elements, nnz, to);
  return {.frame_bytes = layout.total, .nnz = nnz};
}

uint64_t WrapDense(DType dtype, uint64_t elements, void* frame) {
  return WriteHeader(Format::kDense, dtype, elements, elements, static_cast<uint8_t*>(frame)).total;
}

void Decode(const void* frame, void* dense, Stores stores) {
  const KernelTable& table = host::CurrentTable();
  const FrameHeader header = ReadHeader(frame);
  const auto* from = static_cast<const uint8_t*>(frame);
  auto* to = static_cast<uint8_t*>(dense);
  const DType dtype = static_cast<DType>(header.dtype);
  const int width = host::WidthLog2(dtype);
  const uint64_t bytes = header.element_count * SizeOf(dtype);
  const bool streaming =
      stores == Stores::kStreaming || (stores == Stores::kAuto && bytes >= kStreamingBytes);
  switch (static_cast<Format>(header.format)) {
    case Format::kDense: {
      void* const outputs[] = {to};
      table.copy(from + header.values_offset, outputs, 1, bytes, streaming);
      break;
    }
    case Format::kPici:
      table.decode_pici[width](SectionsOf(header, from), header.element_count, to, streaming);
      break;
    case Format::kPiciColumn:
      table.decode_column[width](SectionsOf(header, from), header.element_count, to, streaming);
      break;
    case Format::kCoo:
      table.decode_coo[width](from + header.index_offset, from + header.values_offset, header.nnz,
                              header.element_count, to, streaming);
      break;
    case Format::kGap:
      table.decode_gap[width](GapSectionsOf(header, from), header.element_count, to, streaming);
      break;
    default:
      host::DecodeLossy(table, header, from, to, streaming);
  }
}

void ReduceInto(const void* frame, void* accumulator, DType accumulator_dtype) {
  const KernelTable& table = host::CurrentTable();
  const FrameHeader header = ReadHeader(frame);
  const auto* from = static_cast<const uint8_t*>(frame);
  auto* to = static_cast<uint8_t*>(accumulator);
  const DType dtype = static_cast<DType>(header.dtype);
  const bool wide = accumulator_dtype != dtype;
  switch (static_cast<Format>(header.format)) {
    case Format::kDense:
      table.reduce_dense(from + header.values_offset, dtype, wide, header.element_count, to);
      break;
    case Format::kPici:
      table.reduce_pici(SectionsOf(header, from), dtype, wide, header.element_count, to);
      break;
    case Format::kPiciColumn:
      table.reduce_column(SectionsOf(header, from), dtype, wide, header.element_count, to);
      break;
    case Format::kCoo:
      table.reduce_coo(from + header.index_offset, from + header.values_offset, header.nnz, dtype,
                       wide, to);
      break;
    case Format::kGap:
      table.reduce_gap(GapSectionsOf(header, from), dtype, wide, header.element_count, to);
      break;
    default:
      host::ReduceLossy(table, header, from, to);
  }
}

uint64_t CountNonzeros(DType dtype, const void* dense, uint64_t elements) {
  return host::CurrentTable().count[host::WidthLog2(dtype)](static_cast<const uint8_t*>(dense),
                                                            elements, MagnitudeMask(dtype));
}

uint64_t EstimateNonzeros(DType dtype, const void* dense, uint64_t elements) {
  // Blocks of some cache lines, and not a power of two of them apart, as matrices' rows are.
  constexpr uint64_t kBlock = 256, kStride = 17 * kBlock;
  if (elements < 4 * kStride) return CountNonzeros(dtype, dense, elements);
  const auto* const bytes = static_cast<const std::byte*>(dense);
  uint64_t nnz = 0, seen = 0;
  for (uint64_t at = 0; at + kBlock <= elements; at += kStride) {
    nnz += CountNonzeros(dtype, bytes + at * SizeOf(dtype), kBlock);
    seen += kBlock;
  }
  const double density = static_cast<double>(nnz) / static_cast<double>(seen);
  return static_cast<uint64_t>(std::llround(density * static_cast<double>(elements)));
}

}  // namespace spccl
