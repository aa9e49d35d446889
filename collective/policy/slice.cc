#include "collective/policy/slice.h"

#include <algorithm>

#include "collective/policy/fastest_format.h"
#include "collective/policy/wire_format.h"
#include "kernels/redop.h"

namespace spccl::policy {
namespace {

// Measured over TCP at 1 and 10 Gbit/s. A dense frame of more falls out of the caches between the
// copies on its way; what a frame costs beside its bytes makes small ones dear.
constexpr double kFrameBytes = 128 << 10;
// More of a slice would leave the caches between the passes over it.
constexpr uint64_t kLargest = 2 << 20;
constexpr uint64_t kSmallest = 128 << 10;
// Slices of a chunk for which smaller ones are worth their frames.
constexpr uint64_t kEnoughSlices = 8;

}  // namespace

double DensityOfSum(double d, uint32_t ranks) {
  // By squaring: no library function, so that all nodes get the same bits.
  double zeros = 1, x = 1 - d;
  for (; ranks > 0; ranks /= 2, x *= x) {
    if (ranks % 2 == 1) zeros *= x;
  }
  return 1 - zeros;
}

Codec CodecFor(const Tuning& tuning, const OpDesc& op) {
  const bool pays = !Reduces(op.kind) || SparsityPays(op.dtype, op.redop);
  return pays ? tuning.codec : Codec::kDense;
}

uint64_t SliceBytes(const Tuning& tuning, const OpDesc& op, uint32_t ranks,
                    uint64_t chunk_elements) {
  if (tuning.slice_bytes != 0) return tuning.slice_bytes;
  const DType type = Reduces(op.kind) ? AccumulatorOf(op.dtype, op.redop) : op.dtype;
  const auto width = static_cast<double>(SizeOf(type));
  const double density =
      DensityOfSum(tuning.densities[static_cast<size_t>(op.kind)], Reduces(op.kind) ? ranks : 1);
  const Format format = WireFormat(CodecFor(tuning, op), tuning.costs, width, density);
  const double share = BytesPerElement(format, width, density) / width;
  uint64_t bytes = kSmallest;
  while (bytes < kLargest && 2 * static_cast<double>(bytes) * share <= kFrameBytes) bytes *= 2;
  const uint64_t chunk_bytes = chunk_elements * SizeOf(type);
  while (bytes > kSmallest && chunk_bytes / bytes < kEnoughSlices) bytes /= 2;
  return bytes;
}

}  // namespace spccl::policy
