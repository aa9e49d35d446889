// A synthetic field, noisy images of it, and how far one image is from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace image_stacking {

// Row by row, `side` x `side`.
using Image = std::vector<float>;

// A section through layered ground as reflection seismology sees it: a wavelet along curved
// horizons of different strength, cut by a fault. Magnitudes up to about 1.
Image Field(size_t side);

// The field with independent normal noise of this deviation, from a stream of the image's own.
Image Noisy(const Image& field, double deviation, uint64_t seed, uint32_t image);

// Of images 0 to `count` - 1.
struct Stack {
  std::vector<double> mean;  // summed in double
  double largest = 0;        // magnitude of a pixel
};
Stack ExactStack(const Image& field, double deviation, uint64_t seed, uint32_t count);

// What rounding may do to a mean in float of `count` values of magnitudes up to `largest`, in
// whatever order and with however many of the partial sums rounded once more by a codec: 2^-24 of
// `count` * `largest` at most for each sum and each codec's pass, and for the mean itself.
double RoundingOfMean(uint32_t count, double largest);

struct Quality {
  double psnr_db = 0;  // 20 log10(range / rmse), range that of the reference; infinite if equal
  double nrmse = 0;    // rmse / range
  double largest = 0;  // distance
};
Quality Compare(const std::vector<double>& reference, const Image& image);

}  // namespace image_stacking
