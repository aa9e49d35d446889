// How many bytes the formats take, by density. Pure arithmetic.
#pragma once

#include <algorithm>

#include "collective/policy/settings.h"
#include "kernels/format.h"
#include "kernels/lossy_layout.h"

namespace spccl::policy {

// Bytes of a frame per element of `width` bytes at `density`, its header and padding left out: what
// kernels/layout.h says of a frame of many elements. Of the lossy formats, errorbound's depends on
// the data and is taken for dense.
constexpr double BytesPerElement(Format format, double width, double density) {
  constexpr double kBitmap = 1.0 / 8 + 4.0 / kTileElements;  // and a prefix a tile
  switch (format) {
    case Format::kDense:
    case Format::kErrorBound:
      break;
    case Format::kQsgd2:
    case Format::kQsgd4:
    case Format::kQsgd8:
      return QsgdBits(format) / 8.0 + width / kBucketElements;
    case Format::kPici:
    case Format::kPiciColumn:
      return kBitmap + density * width;
    case Format::kCoo:
      return density * (4 + width);
    case Format::kGap: {
      double bucket = 1;  // elements, as GapShapeOf() chooses them
      int low_bits = 0;
      for (; low_bits < 28 && 2 * density * (2 * bucket) <= 3; ++low_bits) bucket *= 2;
      return (density * (low_bits + 1) + 1.5 / bucket) / 8 + density * width;
    }
  }
  return width;
}

// The density below which a coo frame is smaller than a pici frame: where an index a nonzero is
// less than a bit an element. The same for every type: about 0.0315.
inline constexpr double kCooBelow = BytesPerElement(Format::kPici, 0, 0) / 4;

// The sparse format that `codec` uses at a density where no link's costs are known; kDense if it
// uses none.
constexpr Format SparseFormat(Codec codec, double density) {
  switch (codec) {
    case Codec::kDense:
      return Format::kDense;
    case Codec::kAuto:
      return density < kCooBelow ? Format::kCoo : Format::kPici;
    case Codec::kPici:
      return Format::kPici;
    case Codec::kPiciColumn:
      return Format::kPiciColumn;
    case Codec::kCoo:
      return Format::kCoo;
    case Codec::kGap:
      return Format::kGap;
  }
  return Format::kDense;
}

}  // namespace spccl::policy
