#include "kernels/host/codec_lossy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "kernels/host/codec.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/frame_header.h"
#include "kernels/lossy_layout.h"

namespace spccl {
namespace {

using host::ConstErrorBoundSections;
using host::ConstQsgdSections;
using host::KernelTable;
using host::LossyType;
using host::ZeroPadding;

// A bound and a quantum of the type T, as doubles.
struct Steps {
  double bound;
  double quantum;
};

// The bound is rounded down to the type. The quantum is a little less than twice that, so that the
// rounding of the product that decodes an element still stays within the bound for integers up to
// 2^-9 of the type's precision; beyond, an element is now and then kept exactly. Never subnormal:
// below that, nothing is gained, and elements are kept exactly. Never so large that a quantum or
// its inverse would overflow.
template <class T>
Steps StepsFor(double bound) {
  constexpr double kLeast = double{std::numeric_limits<T>::min()} * 4;
  constexpr double kMost = 1 / kLeast;
  bound = std::min(bound, kMost);
  T rounded = static_cast<T>(bound);
  if (double{rounded} > bound) rounded = std::nextafter(rounded, T{0});
  const T quantum = static_cast<T>(rounded * T{1.9921875});  // 2 * 255 / 256
  return {rounded, std::max<double>(quantum, kLeast)};
}

// A relative bound of nothing but zeros, or of nothing finite, is any.
double AbsoluteBound(const KernelTable& table, DType dtype, const uint8_t* dense, uint64_t elements,
                     ErrorBound bound) {
  if (!bound.relative) return bound.value;
  const double largest = table.largest_finite[LossyType(dtype)](dense, elements);
  return largest == 0 ? 1 : largest * bound.value;
}

ErrorBoundLayout LargestErrorBound(DType dtype, uint64_t elements) {
  const uint64_t words = GroupsOf(elements) * 8 * SizeOf(dtype);
  return ErrorBoundLayoutOf(SizeOf(dtype), elements, elements, words);
}

// Where a frame's end lies is known when all is encoded: what is kept exactly is written behind
// room for the most planes and then moved up.
ErrorBoundLayout EncodeSections(const KernelTable& table, DType dtype, const uint8_t* dense,
                                uint64_t elements, const Steps& steps, uint8_t* frame,
                                uint64_t* exact) {
  const ErrorBoundLayout room = LargestErrorBound(dtype, elements);
  host::ErrorBoundSections out = {frame + room.index,  frame + room.bases,     frame + room.widths,
                                  frame + room.planes, frame + room.positions, frame + room.values};
  const uint64_t words =
      table.encode_errorbound[LossyType(dtype)](dense, elements, steps.quantum, steps.bound, &out);
  *exact = static_cast<uint64_t>(out.positions - (frame + room.positions)) / sizeof(uint32_t);
  const ErrorBoundLayout layout = ErrorBoundLayoutOf(SizeOf(dtype), elements, *exact, words);
  ZeroPadding(frame, static_cast<uint64_t>(out.index - frame), layout.bases);
  ZeroPadding(frame, static_cast<uint64_t>(out.bases - frame), layout.widths);
  ZeroPadding(frame, static_cast<uint64_t>(out.widths - frame), layout.planes);
  const uint64_t planes_end = layout.planes + words * sizeof(uint64_t);
  const uint64_t positions_end = layout.positions + *exact * sizeof(uint32_t);
  std::memmove(frame + layout.positions, frame + room.positions, positions_end - layout.positions);
  std::memmove(frame + layout.values, frame + room.values, layout.total - layout.values);
  ZeroPadding(frame, planes_end, layout.positions);
  ZeroPadding(frame, positions_end, layout.values);
  const ErrorBoundHead head = {steps.quantum, static_cast<uint32_t>(words), 0};
  std::memcpy(frame + layout.head, &head, sizeof(head));
  return layout;
}

ConstErrorBoundSections ErrorBoundOf(const FrameHeader& header, const uint8_t* frame) {
  ErrorBoundHead head;
  std::memcpy(&head, frame + sizeof(FrameHeader), sizeof(head));
  const ErrorBoundLayout layout = ErrorBoundLayoutOf(
      SizeOf(static_cast<DType>(header.dtype)), header.element_count, header.nnz, head.plane_words);
  return {frame + layout.bases,  frame + layout.widths,
          frame + layout.planes, frame + layout.positions,
          frame + layout.values, header.nnz,
          head.quantum};
}

ConstQsgdSections QsgdOf(const FrameHeader& header, const uint8_t* frame) {
  return {frame + header.bitmap_offset, frame + header.values_offset,
          QsgdBits(static_cast<Format>(header.format))};
}

}  // namespace

Encoded EncodeErrorBound(DType dtype, const void* dense, uint64_t elements, ErrorBound bound,
                         void* frame) {
  SPCCL_CHECK(IsValid(bound) && LossyCarries(dtype));
  const KernelTable& table = host::CurrentTable();
  const auto* from = static_cast<const uint8_t*>(dense);
  auto* to = static_cast<uint8_t*>(frame);
  const double absolute = AbsoluteBound(table, dtype, from, elements, bound);
  const Steps steps =
      dtype == DType::kFloat64 ? StepsFor<double>(absolute) : StepsFor<float>(absolute);
  uint64_t exact = 0;
  const ErrorBoundLayout layout = EncodeSections(table, dtype, from, elements, steps, to, &exact);
  host::WriteHeader(Format::kErrorBound, dtype, elements, exact,
                    {.bitmap = layout.planes,
                     .index = layout.head,
                     .values = layout.values,
                     .total = layout.total},
                    to);
  return {.frame_bytes = layout.total, .nnz = exact};
}

std::optional<Encoded> EncodeQsgd(Format format, DType dtype, const void* dense, uint64_t elements,
                                  const Draws& draws, void* frame) {
  const uint32_t bits = QsgdBits(format);
  SPCCL_CHECK(bits != 0 && LossyCarries(dtype));
  auto* to = static_cast<uint8_t*>(frame);
  const QsgdLayout layout = QsgdLayoutOf(bits, SizeOf(dtype), elements);
  if (!host::CurrentTable().encode_qsgd[LossyType(dtype)](static_cast<const uint8_t*>(dense),
                                                          elements, bits, draws, to + layout.planes,
                                                          to + layout.scales)) {
    return std::nullopt;
  }
  const uint64_t planes_end = layout.planes + GroupsOf(elements) * bits * sizeof(uint64_t);
  ZeroPadding(to, planes_end, layout.scales);
  host::WriteHeader(format, dtype, elements, BucketsOf(elements),
                    {.bitmap = layout.planes, .values = layout.scales, .total = layout.total}, to);
  return Encoded{.frame_bytes = layout.total, .nnz = BucketsOf(elements)};
}

}  // namespace spccl

namespace spccl::host {

uint64_t MaxLossyBytes(Format format, DType dtype, uint64_t elements) {
  if (format == Format::kErrorBound) return LargestErrorBound(dtype, elements).total;
  return QsgdLayoutOf(QsgdBits(format), SizeOf(dtype), elements).total;
}

void DecodeLossy(const KernelTable& table, const FrameHeader& header, const uint8_t* frame,
                 uint8_t* dense, bool streaming) {
  const int type = LossyType(static_cast<DType>(header.dtype));
  if (static_cast<Format>(header.format) == Format::kErrorBound) {
    table.decode_errorbound[type](ErrorBoundOf(header, frame), header.element_count, dense,
                                  streaming);
  } else {
    table.decode_qsgd[type](QsgdOf(header, frame), header.element_count, dense, streaming);
  }
}

void ReduceLossy(const KernelTable& table, const FrameHeader& header, const uint8_t* frame,
                 uint8_t* accumulator) {
  const int type = LossyType(static_cast<DType>(header.dtype));
  if (static_cast<Format>(header.format) == Format::kErrorBound) {
    table.reduce_errorbound[type](ErrorBoundOf(header, frame), header.element_count, accumulator);
  } else {
    table.reduce_qsgd[type](QsgdOf(header, frame), header.element_count, accumulator);
  }
}

}  // namespace spccl::host
